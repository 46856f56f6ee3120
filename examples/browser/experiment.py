"""Compiles a matrix product for a web page, runs and times it there on random data, and compares it with NumPy.

    python experiment.py            # prints the URL to open in a browser
    python experiment.py chromium   # opens it in that browser

The page needs the folder `prebuilds/web` of the JavaScript package: $ANYFN_WEB, or that of `npm install anyfn`."""

import functools
import http.server
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

import numpy as np
from anyfn import rpc, te

FILES = pathlib.Path(os.environ.get("ANYFN_WEB", "node_modules/anyfn/prebuilds/web")).resolve()
COMMAND = os.environ.get("ANYFN_COMMAND", "anyfn")
PAGE = """<!doctype html><script type="module">
import * as anyfn from './anyfn.mjs';
await anyfn.serve('ws://%s', { name: 'page', key: '%s', upload: true });
</script>"""


def matmul(n):
    a, b = te.placeholder((n, n), name="a"), te.placeholder((n, n), name="b")
    k = te.reduce_axis((0, n), name="k")
    return [a, b, te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")]


with tempfile.TemporaryDirectory() as folder:
    for file in FILES.iterdir():
        os.symlink(file, pathlib.Path(folder, file.name))
    files = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), files)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{web.server_port}"
    command = [COMMAND, "rpc", "proxy", "--port=0", f"--allow-origin={url}"]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True)]
    try:
        address, key = started[0].stdout.readline().split()[-1], rpc.make_key("page")
        pathlib.Path(folder, "page.html").write_text(PAGE % (address, key))
        print(f"open {url}/page.html", flush=True)
        if sys.argv[1:]:
            started.append(subprocess.Popen([*sys.argv[1:], f"{url}/page.html"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        with rpc.connect(f"ws://{address}/page", key=key, timeout=300) as session:
            a, b = np.random.default_rng().random((2, 256, 256), dtype="float32")
            there = [session.tensor(a), session.tensor(b), session.empty((256, 256))]
            f = session.load(matmul(256))["main"]
            f(*there)
            np.testing.assert_allclose(there[2].numpy(), a @ b, rtol=1e-4)
            seconds = f.time_evaluator(number=5)(*there).mean
            print(f"256 x 256 in the page: equal to NumPy, {2 * 256**3 / seconds / 1e9:.1f} GFLOP/s")
    finally:
        for process in started:
            process.terminate()
