"""The numbers in event files of TensorBoard."""

from pathlib import Path


def curves(directory: Path) -> dict[str, list[tuple[int, float]]]:
    """Return the (generation, value) pairs of each curve in a directory, file by file in the order of their names.

    As in TensorBoard, a file of a resumed run drops what earlier files have of its first generation and later ones.
    """
    from tensorboardX.proto.event_pb2 import Event

    found: dict[str, list[tuple[int, float]]] = {}
    for written in sorted(directory.glob("events.out.tfevents*")):
        data = written.read_bytes()
        while data:  # a record: its length (8 bytes), a checksum (4), the event, a checksum (4)
            length = int.from_bytes(data[:8], "little")
            event = Event.FromString(data[12 : 12 + length])
            data = data[16 + length :]
            if event.session_log.status == event.session_log.START:
                found = {tag: [pair for pair in pairs if pair[0] < event.step] for tag, pairs in found.items()}
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found
