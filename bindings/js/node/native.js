'use strict';
// Finds and loads the addon and the runtime library of the package.

const fs = require('node:fs');
const path = require('node:path');

/** Returns the folders that may contain `anyfn.node` and `libanyfn.so`, the preferred one first. */
function folders() {
  const named = process.env.ANYFN_JS_FOLDER;
  const packaged = path.join(__dirname, '..', 'prebuilds', `${process.platform}-${process.arch}`);
  return named ? [named] : [packaged];
}

/** Loads the addon, and attaches it to the runtime library in the same folder. */
function load() {
  const reasons = [];
  for (const folder of folders()) {
    const [addon, runtime] = [path.join(folder, 'anyfn.node'), path.join(folder, 'libanyfn.so')];
    const missing = [addon, runtime].find((file) => !fs.existsSync(file));
    if (missing) {
      reasons.push(`${missing}: no such file`);
      continue;
    }
    let native;
    try {
      native = require(addon);
    } catch (error) {
      reasons.push(`${addon}: ${error.message}`);
      continue;
    }
    native.attach(fs.realpathSync(runtime));
    return native;
  }
  throw new Error(
    `anyfn has no working addon for ${process.platform}-${process.arch}, Node.js ${process.version}:\n  ` +
      `${reasons.join('\n  ')}\nThe package contains addons for Linux on x86-64; in a checkout, \`./x build\` builds one. ` +
      `On other platforms, \`anyfn/web\` runs over a WebAssembly module.`,
  );
}

module.exports = { load };
