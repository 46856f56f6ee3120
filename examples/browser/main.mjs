// Functions, objects and tensors in a page. Serve this folder with `anyfn.mjs`, `web.mjs` and `anyfn.wasm` of the package.

import anyfn from './anyfn.mjs';

const out = document.getElementById('out');
const print = (text) => out.append(`${text}\n`);

anyfn.registerFunc('page.greet', (name) => `hello ${name}`);
print(anyfn.getGlobalFunc('page.greet')('page'));

class Point extends anyfn.ObjectRef {
  static fields = { x: 'float', y: 'float' };
}
anyfn.registerObject('page.Point', Point);
print(String(new Point({ x: 1, y: 2.5 })));

const x = anyfn.tensor([[1, 2], [3, 4]]);
x.data[0] = 10;
print(x.toArray().join(' '));

try {
  anyfn.getGlobalFunc('page.gret');
} catch (error) {
  print(`${error.name}: ${error.message}`);
}

document.body.dataset.done = 'true';
