"""One rank of a conftest.Job: runs the functions it is told, until the connection closes."""

import faulthandler
import importlib.util
import os
import sys
import traceback
from multiprocessing.connection import Client

import torch

import ronde.torch

sys.path.insert(0, os.path.dirname(__file__))
modules = {}
DUMP_AFTER_S = 90  # before conftest.RUN_TIMEOUT_S: says where a rank hangs


def load(file):
    if file not in modules:
        spec = importlib.util.spec_from_file_location(os.path.basename(file)[:-3], file)
        modules[file] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(modules[file])
    return modules[file]


def run(file, function, args, init):
    torch.manual_seed(0)
    faulthandler.dump_traceback_later(DUMP_AFTER_S)
    try:
        if init:
            ronde.torch.init()
        return True, getattr(load(file), function)(*args)
    except Exception:
        return False, traceback.format_exc()
    finally:
        ronde.torch.shutdown()
        faulthandler.cancel_dump_traceback_later()


connection = Client(os.environ["HARNESS_ADDRESS"], authkey=bytes.fromhex(os.environ["HARNESS_KEY"]))
connection.send(int(os.environ["RANK"]))
while True:
    try:
        task = connection.recv()
    except (EOFError, ConnectionResetError):
        break
    connection.send(run(*task))
