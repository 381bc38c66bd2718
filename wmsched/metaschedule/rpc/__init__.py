"""Devices behind TVM's RPC tracker: their server, the connections to them, and a runner on all of them."""

from wmsched.base.face import lazy

_NAMES = {
    "DeviceRunner": "runner",
    "RemoteDevice": "remote_device",
    "opened": "runner",
    "serve": "server",
}
__all__ = ["DeviceRunner", "RemoteDevice", "opened", "serve"]
__getattr__, __dir__ = lazy(__name__, _NAMES)
