'use strict';
// The package for Node.js as a CommonJS module. `index.mjs` exports the same values as an ES module.

const { load } = require('./node/native.js');
const { createPackage } = require('./lib/package.js');

module.exports = createPackage(load());
