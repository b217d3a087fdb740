"""A SLURM of Debian's packages on hosts made of namespaces: three nodes, and a host for the controller."""

import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from hosts import NETWORK, Hosts, why_not

from evolve.errors import on_error

PACKAGES = "slurmctld slurmd slurm-client munge libpmix-dev"  # srun --mpi=pmix loads libpmix.so
_CONTROLLER = 4
_SOCKETS = Path("/run/evolve-munge")


def why_no_slurm() -> str:
    """Return the reason why SLURM cannot run here, "" if it can."""
    missing = [name for name in ("slurmctld", "slurmd", "sbatch", "munged") if shutil.which(name) is None]
    return f"no {', '.join(missing)}: apt-get install {PACKAGES}" if missing else why_not()


class Slurm:
    """node1 to node3 run jobs; `boot` restarts a lost node.

    folder: The folder for keys, logs and the state of SLURM.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hosts = Hosts(folder / "hosts", _CONTROLLER)
        self.config = folder / "slurm.conf"
        self._services: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Slurm":
        self.hosts.__enter__()
        with on_error(self.__exit__):
            self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self.hosts.__exit__()  # all services end with their hosts
        for service in self._services:
            service.wait(30)
        with suppress(OSError):
            _SOCKETS.rmdir()

    def boot(self, number: int) -> None:
        """Start a node that was lost."""
        self.hosts.boot(number)
        self._node(number)

    def command(self, *words: object, **environment: str) -> str:
        """Run one of SLURM's commands; return its output."""
        given = [f"{name}={value}" for name, value in environment.items()]
        command = self.hosts.on(_CONTROLLER, "env", f"SLURM_CONF={self.config}", *given, *words)
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def _start(self) -> None:
        (self.folder / "key").write_bytes(b"of no secret " * 8)
        (self.folder / "key").chmod(0o400)
        for name in ("state", *(f"{kind}.node{number}" for kind in ("spool", "tmp") for number in range(1, 4))):
            (self.folder / name).mkdir()
        self.config.write_text(self._config())
        self._munge(_CONTROLLER)
        self._service(_CONTROLLER, "slurmctld", "-D", "-c", "-f", self.config)
        for number in range(1, _CONTROLLER):
            self._node(number)
        deadline = time.monotonic() + 90
        while len(self.command("sinfo", "-h", "-N", "-t", "idle", "-o", "%N").split()) < _CONTROLLER - 1:
            assert time.monotonic() < deadline, self.command("sinfo", "-N")
            time.sleep(0.3)

    def _node(self, number: int) -> None:
        self._munge(number)
        self._service(number, "slurmd", "-D", "-N", f"node{number}", "-f", self.config)

    def _munge(self, number: int) -> None:
        """Start the authentication service of a host, and wait for its socket."""
        at = self.folder / f"munge{number}"
        shutil.rmtree(at, ignore_errors=True)
        at.mkdir()
        files = {"socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        options = [f"--{option}={at / name}" for option, name in files.items()]
        self._service(number, "munged", "-F", "--force", f"--key-file={self.folder / 'key'}", *options)
        deadline = time.monotonic() + 30
        while not (at / "socket").exists():
            assert time.monotonic() < deadline, (at / "log").read_text()
            time.sleep(0.05)
        # All hosts share one configuration: each mounts its own socket at the configured path.
        inside = f"mkdir -p {_SOCKETS} && mount --bind {at} {_SOCKETS}"
        subprocess.run(self.hosts.on(number, "sh", "-c", inside), check=True, capture_output=True)

    def _service(self, number: int, *words: object) -> None:
        with open(self.folder / f"{words[0]}{number}.out", "a") as log:
            self._services.append(
                subprocess.Popen(self.hosts.on(number, *words), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )

    def _config(self) -> str:
        settings = {
            "ClusterName": "try",
            "SlurmctldHost": f"node{_CONTROLLER}({NETWORK}.{_CONTROLLER})",
            "SlurmUser": "root",
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={_SOCKETS}/socket,cred_expire=5",
            "CredType": "cred/munge",
            "StateSaveLocation": self.folder / "state",
            "SlurmdSpoolDir": self.folder / "spool.%n",
            "TmpFS": self.folder / "tmp.%n",
            "SlurmctldPidFile": self.folder / "slurmctld.pid",
            "SlurmdPidFile": self.folder / "slurmd.%n.pid",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "JobAcctGatherType": "jobacct_gather/none",
            "AccountingStorageType": "accounting_storage/none",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core",
            "SchedulerType": "sched/builtin",
            "SchedulerParameters": "batch_sched_delay=0,sched_interval=2,sched_min_interval=0",
            "SlurmdParameters": "config_overrides",
            "MpiDefault": "none",
            "ReturnToService": 2,
            "SlurmdTimeout": 10,
            "KillWait": 10,
            "CompleteWait": 0,
            "PropagateResourceLimits": "NONE",
        }
        lines = [f"{name}={value}" for name, value in settings.items()]
        for number in range(1, _CONTROLLER):
            where = f"NodeAddr={NETWORK}.{number} NodeHostname=node{number}"
            lines.append(f"NodeName=node{number} {where} CPUs=4 RealMemory=2000 State=UNKNOWN")
        return "\n".join([*lines, "PartitionName=try Nodes=ALL Default=YES MaxTime=INFINITE State=UP", ""])
