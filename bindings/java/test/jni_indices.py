"""Compares the indices of the functions of JNI in ``src/sys.rs`` with ``jni.h`` of the installed JDK, which is the argument."""

import re
import sys
from pathlib import Path


def table(header, name):
    """Returns the members of a table of functions, in order."""
    body = re.search(rf"struct {name} \{{(.*?)\n\}};", header, re.DOTALL).group(1)
    body = body.split("#ifdef __cplusplus")[0]
    return re.findall(r"\(JNICALL \*(\w+)\)|void \*(reserved\d)", body)


header = Path(sys.argv[1]).read_text(encoding="utf-8")
source = (Path(__file__).parents[1] / "src/sys.rs").read_text(encoding="utf-8")
wrong = 0
for kind, name in (("Env", "JNINativeInterface_"), ("Vm", "JNIInvokeInterface_")):
    members = [function or reserved for function, reserved in table(header, name)]
    block = re.search(rf"functions! \{{ {kind}:(.*?)\n\}}", source, re.DOTALL).group(1)
    for documented, index in re.findall(r"/// `(\w+)`[^\n]*\n\s*(\d+) ", block):
        if members[int(index)] != documented:
            print(f"{documented}: the function at {index} is {members[int(index)]}")
            wrong += 1
    checked = len(re.findall(r"\n    \d+ ", block))
    print(f"{kind}: {checked} functions")
sys.exit(1 if wrong else 0)
