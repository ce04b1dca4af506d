"""The DDPJob API, ddpjob.dev/v1alpha1: the one place where its fields, defaults, bounds and descriptions are declared."""

from ddpjob_core.api.base import ApiModel, format_time
from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.api.status import Condition, ConditionType, DDPJobStatus, Phase

__all__ = ["ApiModel", "Condition", "ConditionType", "DDPJobSpec", "DDPJobStatus", "Phase", "format_time"]
