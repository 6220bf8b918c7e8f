// Opens a page by Playwright with Debian's Chromium, clicks, and takes a picture. Playwright itself says --no-sandbox.
import { chromium } from 'playwright-core';

const browser = await chromium.launch({ executablePath: '/usr/bin/chromium' });
const page = await browser.newPage();
await page.setContent('<title>A page</title><button onclick="document.title = \'clicked\'">x</button>');
await page.getByRole('button').click();
console.log(await page.title());
await page.screenshot({ path: 'shot.png' });
await browser.close();
