"""wmsched: a pretrained world model that ranks tensor-program schedules before they are measured."""

__version__ = "0.1.0"
