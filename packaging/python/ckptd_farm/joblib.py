"""A farm as a backend of joblib.

    import ckptd_farm.joblib
    from joblib import Parallel, delayed, parallel_config

    ckptd_farm.joblib.register()
    with parallel_config(backend="ckptd", n_jobs=8, name="fits"):
        Parallel()(delayed(fit)(seed) for seed in range(1000))
"""

from __future__ import annotations

import os
from typing import Any, Callable, Optional

from joblib import register_parallel_backend
from joblib._parallel_backends import AutoBatchingMixin, ParallelBackendBase

from .farm import Farm
from .future import FarmFuture


class FarmBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """Has batches of calls run as tasks of a farm. Options are those of `Farm`; `n_jobs` are its `jobs`."""

    supports_retrieve_callback = True

    def effective_n_jobs(self, n_jobs: Optional[int]) -> int:
        """How many calls run at a time; -1: as many as there are processors."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        processors = os.cpu_count() or 1
        if n_jobs is None:
            return processors
        return n_jobs if n_jobs > 0 else max(processors + 1 + n_jobs, 1)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **_options: Any) -> int:
        """Begins a farm for one `Parallel`."""
        # Those of this call are joblib's own, for backends that share memory.
        jobs = self.effective_n_jobs(n_jobs)
        self._farm = Farm(jobs=jobs, **self.backend_kwargs)
        self.parallel = parallel
        return jobs

    def submit(self, func: Callable[[], Any], callback: Optional[Callable[[Any], None]] = None) -> FarmFuture[Any]:
        """Has a batch run."""
        future = self._farm.submit(func)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: FarmFuture[Any]) -> Any:
        """What a batch has returned."""
        return out.result()

    def terminate(self) -> None:
        """Ends the farm, with what waits in it."""
        self._farm.shutdown(cancel_futures=True)
        self.reset_batch_stats()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Ends the farm, with what runs in it."""
        for future in list(self._farm._pending.values()):
            future.kill()
        self.terminate()
        if ensure_ready:
            self.configure(self.parallel.n_jobs, self.parallel)


def register() -> None:
    """Makes it the backend `ckptd`."""
    register_parallel_backend("ckptd", FarmBackend)
