"""Where the time of a loop over batches goes."""

import threading


class Timings:
    """Seconds since the first batch or reset(), added up over all iterations of an ImageDataset.

    batches         batches handed out
    daemon_s        the consumer waited for the daemon: reading, decoding, pipeline
    transform_s     the consumer waited for its own `transform` and `batch_transform`; excludes the part that overlapped with its work
    transform_cpu_s the transforms ran, added up over all threads or processes
    consumer_s      the consumer used a batch, until it requested the next one
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        self.batches = 0
        self.daemon_s = self.transform_s = self.transform_cpu_s = self.consumer_s = 0.0

    def waited(self, seconds: float) -> None:
        with self._lock:
            self.batches += 1
            self.daemon_s += seconds

    def transformed(self, waited: float, ran: float) -> None:
        with self._lock:
            self.transform_s += waited
            self.transform_cpu_s += ran

    def consumed(self, seconds: float) -> None:
        with self._lock:
            self.consumer_s += seconds

    def __repr__(self) -> str:
        return (
            f"<loaderd.Timings {self.batches} batches: {self.daemon_s:.3f} s for the daemon, {self.transform_s:.3f} s for transform "
            f"(which ran {self.transform_cpu_s:.3f} s), {self.consumer_s:.3f} s in the consumer>"
        )
