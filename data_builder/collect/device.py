"""`wmsched-data device`: makes this machine a device behind TVM's RPC tracker.

A plain `python -m tvm.exec.rpc_server` does as well, except with the wheel that `wmsched setup-tvm` installs:
its client sends `load_module` two arguments more than its own server takes, and every run ends in an error
without a text. This server takes them and ignores them.
"""

from __future__ import annotations

from typing import Any

from wmsched.base.cores import name_threads
from wmsched.measure.tracker import host_and_port, listen
from wmsched.toolchain.resolve import autoscheduler_tvm


def serve(tracker: str, key: str, *, host: str = "0.0.0.0", port: int = 0) -> None:
    """Serve until interrupted; each session runs in a process of its own.

    Parameters
    ----------
    tracker : str
        host:port of the tracker.
    key : str
        The name under which devices of this kind are asked for.
    host, port
        Where to listen; 0 takes a free port.

    Raises
    ------
    EnvironmentProblem
        The address cannot be listened on.
    """
    where = host_and_port(tracker)
    name_threads(autoscheduler_tvm())
    from tvm.rpc import server

    plain = server._server_env

    def with_more_arguments(*args: Any) -> Any:
        folder = plain(*args)
        import tvm
        from tvm.runtime import load_module

        @tvm._ffi.register_func("tvm.rpc.server.load_module", override=True)
        def load(name: str, *_: Any) -> Any:
            return load_module(folder.relpath(name))

        return folder

    server._server_env = with_more_arguments
    listening = listen(host, port)
    server._listen_loop(listening, listening.getsockname()[1], key, where, "", None)
