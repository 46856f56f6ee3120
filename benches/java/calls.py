"""Runs ``Calls.java`` for each row, in a process of its own, with each JDK::

    calls.py TESTING_LIBRARY FOLDER CLASSES NAME=HOME.. [ROW..]

``FOLDER`` contains what ``extensions.java`` has built. ``NAME`` is the first part of the names of rows.
"""

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import extensions
from rows import JAVA, SECTIONS


def main():
    library, folder, classes, *rest = sys.argv[1:]
    homes = dict(word.split("=", 1) for word in rest if "=" in word)
    only = [word for word in rest if "=" not in word]
    for row in SECTIONS[JAVA]:
        name, _, call = row.name.partition("_")
        if name in homes and (not only or row.name in only):
            java = Path(homes[name]) / "bin/java"
            options = [f"-Dplain={folder}/libplain.so", f"-Dorg.anyfn.library.path={Path(library).parent}"]
            if extensions.java_version(homes[name]) >= 24:
                options.append("--enable-native-access=ALL-UNNAMED")
            path = f"{classes}:{folder}:{folder}/ffm"
            subprocess.run([java, *options, "-cp", path, "Calls", library, call, row.name], check=True)


if __name__ == "__main__":
    main()
