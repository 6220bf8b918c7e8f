/** hutch for Node: the classes of this package. docs/clients.md is the manual. */
'use strict';

const { Client } = require('./lib/client.js');
const { HutchError } = require('./lib/errors.js');
const { Session } = require('./lib/session.js');

module.exports = { Client, HutchError, Session };
