#!/usr/bin/env python3
"""A model's program makes files, which go to an object store by presigned URLs. The program knows neither the store nor its
keys, and has no network: what it has left in /mnt/data is fetched, and put there from here.

    S3_URL=http://localhost:9000/BUCKET S3_KEY=… S3_SECRET=… upload.py "Draw a sine." """
import datetime
import hashlib
import hmac
import os
import sys
import urllib.parse
import urllib.request

import model

LARGEST = 64 << 20


def presign(url, method, key, secret, region="us-east-1", seconds=600, now=None):
    """A URL that lets whoever has it make one request until it expires: AWS' Signature Version 4, in the query."""
    now = now or datetime.datetime.now(datetime.timezone.utc)
    day, stamp = now.strftime("%Y%m%d"), now.strftime("%Y%m%dT%H%M%SZ")
    scope = "%s/%s/s3/aws4_request" % (day, region)
    parts = urllib.parse.urlsplit(url)
    query = urllib.parse.urlencode({"X-Amz-Algorithm": "AWS4-HMAC-SHA256", "X-Amz-Credential": "%s/%s" % (key, scope), "X-Amz-Date": stamp,
                                    "X-Amz-Expires": seconds, "X-Amz-SignedHeaders": "host"}, quote_via=urllib.parse.quote, safe="")
    request = "\n".join([method, parts.path, query, "host:" + parts.netloc, "", "host", "UNSIGNED-PAYLOAD"])
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(request.encode()).hexdigest()])
    signed = ("AWS4" + secret).encode()
    for word in (day, region, "s3", "aws4_request"):
        signed = hmac.digest(signed, word.encode(), "sha256")
    return "%s?%s&X-Amz-Signature=%s" % (url, query, hmac.new(signed, text.encode(), "sha256").hexdigest())


def main():
    base, key, secret = (os.environ[name] for name in ("S3_URL", "S3_KEY", "S3_SECRET"))
    message = model.ask([{"role": "system", "content": "Answer with one Python program between ```. It writes files to /mnt/data."},
                         {"role": "user", "content": sys.argv[1]}])
    with model.client() as client, client.session() as session:
        cell = session.run(model.code_of(message), timeout=30)
        print("%s: %s" % (cell.verdict, model.text_of(cell).rstrip()))
        for file in session.files():
            if file.type != "file" or file.size > LARGEST:
                print("left out: %r" % file.path)
                continue
            url = presign("%s/%s" % (base, urllib.parse.quote(file.path, safe="/~")), "PUT", key, secret)
            content = session.download(file.name)
            with urllib.request.urlopen(urllib.request.Request(url, content, {"Content-Type": "application/octet-stream"}, method="PUT")) as answer:
                print("%d: %s, %d bytes" % (answer.status, file.path, len(content)))


if __name__ == "__main__":
    main()
