// Makes a layer of an image: installs what a package.json asks for by npm, and writes it to standard output as a tar archive:
// lock.json, which says what was installed, and the directory tree.
//
// It has node_modules at the top, where Node looks at last for the modules of a program in any directory, by require() and by
// import alike. What comes out is judged by hutch as an archive from a stranger: code of a package may have run here.
//
// /mnt/in/request.json: an object with "index" (a registry, "" for none, null for npm's own), "environment" (variables of proxies) and
// "build" (whether scripts of packages run). /mnt/npm is the directory of package.json.
'use strict';
const { spawnSync } = require('child_process');
const fs = require('fs');

const WORK = '/mnt/data/work', ROOT = '/mnt/data/out', GIVEN = '/mnt/npm', AUTHORITIES = '/mnt/authorities/all.pem';
const LONG_AGO = '@315619200'; // as of the layers of pip
const MAX_ERROR = 600;

function fail(text) { // hutch shows the last line
    process.stderr.write(text.replace(/\s+/g, ' ').slice(-MAX_ERROR) + '\n');
    process.exit(1);
}

function copyGiven() {
    const names = ['package.json', 'package-lock.json', 'npm-shrinkwrap.json', '.npmrc'];
    for (const name of fs.readdirSync(GIVEN))
        if (names.includes(name) || name.endsWith('.tgz'))
            fs.copyFileSync(GIVEN + '/' + name, WORK + '/' + name);
}

// A registry may have a password in it, which is no word of a command line: that is seen from outside.
function environmentFor(request) {
    const env = { ...process.env, ...request.environment, HOME: '/mnt/data/home', TMPDIR: '/mnt/data/tmp' };
    if (request.index)
        env.npm_config_registry = request.index;
    if (fs.existsSync(AUTHORITIES))
        env.NODE_EXTRA_CA_CERTS = AUTHORITIES;
    return env;
}

function runNpm(request) {
    const words = ['install', '--omit=dev', '--no-audit', '--no-fund', '--no-update-notifier', '--loglevel=error', '--cache=/mnt/data/cache'];
    if (!request.build)
        words.push('--ignore-scripts', '--git=/bin/false'); // what comes from a repository is prepared by scripts of its own
    if (request.index === '')
        words.push('--offline');
    const done = spawnSync('npm', words, { cwd: WORK, env: environmentFor(request),
                                           stdio: ['ignore', 'pipe', 'pipe'], maxBuffer: 1 << 26 });
    if (done.error)
        fail('the image has no npm that can be run (' + done.error.code + '): take an image that has, such as one with Node');
    if (done.status !== 0) {
        const lines = String(done.stderr).split('\n').map(line => line.replace(/^npm (ERR!|error) ?/, '').trim());
        fail('npm: ' + (lines.filter(line => line && !/complete log|_logs|^code /.test(line)).slice(0, 6).join(' ') || 'it failed'));
    }
}

function makeLock() {
    const installed = JSON.parse(fs.readFileSync(WORK + '/package-lock.json', 'utf8')).packages;
    const version = String(spawnSync('npm', ['--version']).stdout).trim();
    const packages = Object.keys(installed).filter(place => place && fs.existsSync(WORK + '/' + place)).sort().map(place => ({
        name: place.replace(/^.*node_modules\//, ''), version: String(installed[place].version || ''),
        integrity: installed[place].integrity || '', file: String(installed[place].resolved || '').replace(/^.*\//, '') }));
    return { tool: 'npm ' + version, language: 'node ' + process.version.slice(1), packages };
}

function writeArchive(lock) {
    fs.mkdirSync(ROOT + '/tree', { recursive: true });
    fs.writeFileSync(ROOT + '/lock.json', JSON.stringify(lock));
    if (fs.existsSync(WORK + '/node_modules'))
        fs.renameSync(WORK + '/node_modules', ROOT + '/tree/node_modules');
    fs.rmSync(ROOT + '/tree/node_modules/.package-lock.json', { force: true });
    const done = spawnSync('tar', ['--create', '--file=-', '--format=pax', '--sort=name', '--mtime=' + LONG_AGO, '--owner=0', '--group=0',
        '--numeric-owner', '--mode=u=rwX,go=rX', '--pax-option=delete=atime,delete=ctime', '--directory=' + ROOT, 'lock.json', 'tree'],
        { stdio: ['ignore', 'inherit', 'inherit'] });
    if (done.error || done.status !== 0)
        fail('the image has no tar that can be run');
}

for (const directory of [WORK, '/mnt/data/home', '/mnt/data/tmp'])
    fs.mkdirSync(directory, { recursive: true });
copyGiven();
runNpm(JSON.parse(fs.readFileSync('/mnt/in/request.json', 'utf8')));
writeArchive(makeLock());
