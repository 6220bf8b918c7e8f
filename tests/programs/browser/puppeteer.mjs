// Opens a page by Puppeteer with Debian's Chromium, clicks, and takes a picture and a PDF. Its words are arguments for Chromium.
import puppeteer from 'puppeteer-core';

const browser = await puppeteer.launch({ executablePath: '/usr/bin/chromium', args: process.argv.slice(2) });
const page = await browser.newPage();
await page.setContent('<title>A page</title><button onclick="document.title = \'clicked\'">x</button>');
await page.click('button');
console.log(await page.title());
await page.screenshot({ path: 'shot.png' });
await page.pdf({ path: 'page.pdf' });
await browser.close();
