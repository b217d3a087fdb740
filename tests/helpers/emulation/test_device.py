"""The emulated device keeps the protocol, and finds out what a real one may forgive."""

import gc
import threading

import numpy as np
import pytest

from emulation import EmulatedDevice, KernelError, emulation_available
from evolve.numerics import device as devices
from evolve.numerics.device_protocol import DeviceMemoryError

pytestmark = pytest.mark.skipif(not emulation_available(), reason="no gcc or no NVRTC")

SOURCE = """
#define KERNEL(name) extern "C" __global__ void evolve_##name
#define LIMITED(name) extern "C" __global__ void __launch_bounds__(64) evolve_##name
#define ME (threadIdx.x + 32 * threadIdx.y)
#define THREADS (32 * blockDim.y)
LIMITED(narrow)(int *x) { x[ME] = ME; }
KERNEL(number)(int *x) { x[blockIdx.x * THREADS + ME] = blockIdx.x * 1000 + ME; }
KERNEL(turn_around)(int *x)
{
    x += blockIdx.x * THREADS;
    const int mine = x[THREADS - 1 - ME];
    __syncthreads();
    x[ME] = mine;
}
KERNEL(order)(int *x) { x[1 + (*x)++] = ME; }
KERNEL(count)(int *x) { ++*x; }
KERNEL(uneven)(int *x) { if (ME < 5) __syncthreads(); x[ME] = 1; }
KERNEL(any)(int *x, long long which) { x[ME] = __syncthreads_or(ME == which); }
KERNEL(add_up)(unsigned long long *x) { x[1 + atomicAdd(x, 1ull)] = ME; }
KERNEL(whole)(const double *x, long long *y) { y[ME] = x[ME]; }
KERNEL(copy)(const int *x, int *y) { y[ME] = x[ME]; }
KERNEL(wide)(const long long *x, long long *y) { y[ME] = x[ME]; }
KERNEL(quotient)(int *x) { x[ME] = 7 / x[ME]; }
"""


def make(**how):
    return EmulatedDevice(files={"kernels.cu": SOURCE}, **how)


@pytest.fixture
def device():
    return make(capacity=10_000)


def run(device, kernel, x, *more, blocks=1, parts=2):
    """Return what a kernel makes of an array."""
    queue, memory, y = device.queue(), device.allocate(x.nbytes), np.empty_like(x)
    queue.upload(memory.address, x)
    queue.launch(kernel, blocks, parts, memory.address, *more)
    queue.download(memory.address, y)
    queue.wait()
    return y


def zeros(n=64):
    return np.zeros(n, np.int32)


def test_threads_of_several_blocks_wait_for_each_other(device):
    for blocks, parts in ((1, 1), (3, 2), (2, 8)):
        x = zeros(blocks * parts * 32)
        numbers = np.arange(blocks)[:, None] * 1000 + np.arange(parts * 32)
        assert np.array_equal(run(device, "number", x, blocks=blocks, parts=parts), numbers.ravel())
        turned = run(device, "turn_around", numbers.astype(np.int32), blocks=blocks, parts=parts)
        assert np.array_equal(turned, numbers[:, ::-1])


def test_a_barrier_counts_the_votes_of_threads(device):
    assert run(device, "any", zeros(), 40).all()
    assert not run(device, "any", zeros(), 999).any()


def test_threads_take_turns_in_an_order_that_a_seed_determines():
    orders = [run(make(seed=seed), "order", zeros(65)).tolist() for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0][1:]) == list(range(64)) != orders[0][1:]
    same_device = make()
    assert run(same_device, "order", zeros(65)).tolist() != run(same_device, "order", zeros(65)).tolist()


@pytest.mark.parametrize(
    ("kernel", "more", "wrong"),
    [
        ("uneven", (), r"evolve_uneven: block 0: thread \(\d+, \d, 0\) misses a barrier of thread \(0, 0, 0\)"),
        ("quotient", (), r"thread \(\d+, \d, 0\): a division by zero"),
        ("copy", (zeros().ctypes.data,), "an access to what is not memory of the device at st.global"),
        ("copy", (0,), "an access to what is not memory of the device"),
    ],
)
def test_what_no_kernel_may_do(device, kernel, more, wrong):
    with pytest.raises(KernelError, match=wrong):
        run(device, kernel, zeros(), *more)
    assert run(device, "number", zeros())[63] == 63  # the device goes on


def test_kernels_stay_inside_a_piece_of_memory(device):
    with pytest.raises(KernelError, match="not memory"):
        run(device, "number", zeros(63))
    x, y = device.allocate(600), device.allocate(600)
    queue = device.queue()
    queue.launch("wide", 1, 2, x.address + 4, y.address)
    with pytest.raises(KernelError, match="an access that is not aligned"):
        queue.wait()


def test_races():
    device = make(check_races=True)
    x = np.arange(128, dtype=np.int32)
    assert run(device, "turn_around", x, blocks=2)[0] == 63
    device.lost_barriers = {0}
    with pytest.raises(KernelError, match="a race with another thread at"):
        run(device, "turn_around", x, blocks=2)
    with pytest.raises(KernelError, match="a race"):  # between threads of a block
        run(device, "count", zeros())
    device.check_races = False
    assert run(device, "count", zeros(), blocks=3)[0] == 192


def test_threads_may_count_together():
    device = make(check_races=True)
    counted = run(device, "add_up", np.zeros(193, np.int64), blocks=3)
    assert counted[0] == 192
    assert np.array_equal(np.sort(counted[1:]), np.repeat(np.arange(64), 3))


def test_doubles_become_integers_that_can_hold_them(device):
    x = np.full(32, -(2.0**53) - 2)
    x[0] = 3.99
    memory, queue, y = device.allocate(512), device.queue(), np.zeros(32, np.int64)
    for wrong in (None, 2.0**63, -np.inf, np.nan):
        x[5] = x[5] if wrong is None else wrong
        queue.upload(memory.address, x)
        queue.launch("whole", 1, 1, memory.address, memory.address + 256)
        queue.download(memory.address + 256, y)
        if wrong is not None:
            with pytest.raises(KernelError, match=r"thread \(5, 0, 0\): a float that no integer holds"):
                queue.wait()
        else:
            queue.wait()
            assert np.array_equal(y, x.astype(np.int64))


def test_races_between_blocks():
    device, x = make(check_races=True), zeros(128)
    memory = device.allocate(x.nbytes)
    queue = device.queue()
    queue.launch("copy", 1, 2, memory.address, memory.address + 256)
    queue.wait()
    queue.launch("copy", 2, 2, memory.address, memory.address + 256)  # both write the same
    with pytest.raises(KernelError, match=r"block 1, .* a race"):
        queue.wait()


def test_queued_work_runs_at_the_next_wait(device):
    queue, memory, y = device.queue(), device.allocate(256), zeros()
    queue.launch("number", 1, 2, memory.address)
    queue.download(memory.address, y)
    assert (y == -16843010).all()  # nonsense
    queue.wait()
    assert np.array_equal(y, np.arange(64))
    y[:] = 7
    queue.wait()  # nothing is done twice
    assert (y == 7).all()


def test_a_host_array_must_not_change_before_its_copy(device):
    queue, memory, x = device.queue(), device.allocate(256), zeros()
    queue.upload(memory.address, x)
    x[3] = 1
    with pytest.raises(KernelError, match="changed after it was queued"):
        queue.wait()


def test_copies_outside_the_memory_of_the_device(device):
    memory, x = device.allocate(255), zeros()
    queue = device.queue()
    queue.upload(memory.address, x)
    with pytest.raises(KernelError, match="an upload of 256 bytes at 0x"):
        queue.wait()
    queue.download(memory.address, x)
    with pytest.raises(KernelError, match="a download of 256 bytes"):
        queue.wait()
    with pytest.raises(ValueError, match="C-contiguous"):
        queue.upload(memory.address, x[::2])


def test_memory_is_zero_counted_and_limited(device):
    memory = device.allocate(4_000)
    assert (memory.nbytes, device.allocated, device.free_memory(), device.allocations) == (4_000, 4_000, 6_000, 1)
    y = np.ones(1_000, np.int32)
    queue = device.queue()
    queue.download(memory.address, y)
    queue.wait()
    assert not y.any()
    with pytest.raises(DeviceMemoryError, match="6,001 bytes needed, 6,000 free"):
        device.allocate(6_001)
    del memory
    gc.collect()
    assert (device.allocated, device.allocations) == (0, 0)


def test_freed_memory_cannot_be_used(device):
    queue, memory = device.queue(), device.allocate(256)
    queue.launch("number", 1, 2, memory.address)
    del memory
    gc.collect()
    with pytest.raises(KernelError, match="not memory of the device"):
        queue.wait()


def test_launches_are_checked_at_once(device):
    queue = device.queue()
    with pytest.raises(TypeError, match=r"evolve_copy has parameters of \[1, 1\] words, got \[1\]"):
        queue.launch("copy", 1, 1, 0)
    for blocks, parts in ((0, 1), (1, 0), (1, 9)):
        with pytest.raises(ValueError, match="expected blocks from 1 on and parts from 1 to 8"):
            queue.launch("number", blocks, parts, 0)


def test_a_block_has_no_more_threads_than_its_kernel_was_compiled_for(device):
    assert np.array_equal(run(device, "narrow", zeros()), np.arange(64))
    with pytest.raises(ValueError, match="evolve_narrow was compiled for fewer than 96 threads of a block"):
        run(device, "narrow", zeros(), parts=3)


def test_a_device_is_for_its_thread(device):
    refused = []

    def allocate():
        with pytest.raises(RuntimeError, match="the thread that has opened it"):
            device.allocate(1)
        refused.append(True)

    thread = threading.Thread(target=allocate)
    thread.start()
    thread.join()
    assert refused


def test_it_is_the_device_of_the_process_for_a_while(device):
    before = devices.use(None)
    devices.use(before)
    with device.in_use():
        assert devices.device() is device
    assert devices.use(before) is before
