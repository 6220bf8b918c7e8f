'use strict';

const fs = require('node:fs');
const path = require('node:path');

const { notSupported } = require('./errors.js');

function writesCode(codeFilename) {
  return (options, directory) => fs.writeFileSync(path.join(directory, codeFilename), options.code);
}

function language(name, defaultImage, codeFilename, program, packages) {
  return {
    language: name, defaultImage, codeFilename, program, packages,
    prepareFiles: writesCode(codeFilename),
    buildInlineCommand: () => [...program, codeFilename],
    buildRunAppCommand: (entry) => [...program, entry],
  };
}

/** By its first line, which can name another shell. */
function shellScript(file) {
  return ['sh', '-c', 'chmod +x "$1" && "./$1"', 'sh', file];
}

/* `program` and `packages` are this package's: what is executed, and what a dependency is in this language. The images
 * are those that interpreter-tools names; they say here what a caller means, and nothing else. */
const usual = [
  language('javascript', 'node:18-alpine', 'code.js', ['node'], null),
  {
    ...language('typescript', 'node:18-alpine', 'code.ts', ['node'], null),
    prepareFiles: () => {
      throw notSupported("hutch has no language 'typescript': compile it, and run it as 'javascript'");
    },
  },
  language('python', 'python:3.9-slim', 'code.py', ['python3', '-u'], 'modules'),
  {
    ...language('shell', 'alpine:latest', 'code.sh', ['sh'], 'programs'),
    buildInlineCommand: () => shellScript('code.sh'),
    buildRunAppCommand: (entry) => shellScript(entry),
  },
];

/** The languages that `ExecutionEngine` and the tool know. One that is registered says by which command it runs; what
 * that needs has to be in the server's image. */
class LanguageRegistry {
  static #configs = new Map(usual.map((config) => [config.language, config]));

  static get(name) {
    return LanguageRegistry.#configs.get(name);
  }

  static register(config) {
    LanguageRegistry.#configs.set(config.language, config);
  }

  static list() {
    return [...LanguageRegistry.#configs.values()];
  }

  static names() {
    return [...LanguageRegistry.#configs.keys()];
  }
}

function getImageForLanguage(name) {
  return requireLanguage(name).defaultImage;
}

function requireLanguage(name) {
  const config = LanguageRegistry.get(name);
  if (!config) {
    throw notSupported(`there is no language '${name}' here: there are ${LanguageRegistry.names().join(', ')}`);
  }
  return config;
}

module.exports = { LanguageRegistry, getImageForLanguage, requireLanguage };
