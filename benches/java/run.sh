#!/bin/sh
# Measures calls from Java beside those through JNI alone, after `./x bench` or a release build and `./x build`:
#
#     benches/java/run.sh [JAVA_HOME]
#
# Two processes per row would differ by what the VM has compiled, so the program runs twice and both tables are printed.
set -e
cd "$(dirname "$0")/../.."
home=${1:-$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")}
work=target/java/bench
mkdir -p "$work"
cc -O2 -shared -fPIC -I "$home/include" -I "$home/include/linux" benches/java/plain.c -o "$work/libplain.so"
javac --release 17 -cp target/java/classes -d "$work" benches/java/Plain.java benches/java/Calls.java
for run in 1 2; do
  "$home/bin/java" -Dplain="$PWD/$work/libplain.so" -Dorg.anyfn.library.path="$PWD/target/release" -cp "$work:target/java/classes" Calls \
    target/release/libanyfn_testing.so
done
