// @modelcontextprotocol/conformance, from its folder. Words: those of its command line. 0.1.13 is the last one that Node 20 loads.
await import('./node_modules/@modelcontextprotocol/conformance/dist/index.js');
