"""Functions that the tests of sessions call in a remote process."""

import os
import signal
import sys
import time

import numpy as np

import anyfn


@anyfn.register_func("remote.echo", override=True)
def echo(value):
    return value


@anyfn.register_func("remote.scale", override=True)
def scale(value, factor=2):
    return value * factor


@anyfn.register_func("remote.fail", override=True)
def fail(text):
    raise KeyError(text)


@anyfn.register_func("remote.double", override=True)
def double(source, target):
    np.asarray(target)[...] = np.asarray(source) * 2


@anyfn.register_func("remote.apply", override=True)
def apply(function, value):
    return function(value)


@anyfn.register_func("remote.sleep", override=True)
def sleep(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.01)


@anyfn.register_func("remote.pid", override=True)
def pid():
    return os.getpid()


@anyfn.register_func("remote.crash", override=True)
def crash():
    os.kill(os.getpid(), signal.SIGKILL)


@anyfn.register_func("remote.say", override=True)
def say(data):
    """Writes bytes to standard error."""
    sys.stderr.buffer.write(data)
    sys.stderr.flush()


@anyfn.register_func("remote.leave", override=True)
def leave(status):
    os._exit(status)
