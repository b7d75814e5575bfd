"""Python calls as tasks of `ckptd farm`: each ends once, and long ones go on from their last checkpoints.

    from ckptd_farm import Farm

    with Farm("sweep", resume=True) as farm:
        for result in farm.map(simulate, range(1000)):
            print(result)
"""

from .errors import FarmError, TaskFailed
from .farm import Farm
from .future import FarmFuture

__all__ = ["Farm", "FarmError", "FarmFuture", "TaskFailed"]
