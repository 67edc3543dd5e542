"""One rank of a conftest.Job: runs the functions it is told, until the connection closes."""

import importlib.util
import os
import sys
import traceback
from multiprocessing.connection import Client

import torch

import ronde.torch

sys.path.insert(0, os.path.dirname(__file__))
modules = {}


def load(file):
    if file not in modules:
        spec = importlib.util.spec_from_file_location(os.path.basename(file)[:-3], file)
        modules[file] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(modules[file])
    return modules[file]


def run(file, function, args, init):
    torch.manual_seed(0)
    if init:
        ronde.torch.init()
    try:
        return True, getattr(load(file), function)(*args)
    except Exception:
        return False, traceback.format_exc()
    finally:
        ronde.torch.shutdown()


connection = Client(os.environ["HARNESS_ADDRESS"], authkey=bytes.fromhex(os.environ["HARNESS_KEY"]))
connection.send(int(os.environ["RANK"]))
while True:
    try:
        task = connection.recv()
    except (EOFError, ConnectionResetError):
        break
    connection.send(run(*task))
