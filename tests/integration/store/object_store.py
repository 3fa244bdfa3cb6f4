"""An object store for tests: S3's API with signatures, plain HTTP, and faults on request. Uses only the standard library.

Written from Amazon's API reference ("Signature Version 4", "GetObject", "CreateMultipartUpload" and so on), not from packimg's requests.
"""

import contextlib
import email.utils
import functools
import hashlib
import hmac
import http.server
import os
import re
import socket
import struct
import sys
import threading
import time
import urllib.parse

KEY, SECRET, REGION = "TESTKEY", "testsecret", "eu-test-1"


class Fault:
    """What happens to the next `times` requests that match a method and a part of the path."""

    def __init__(self, act, method="GET", part="", times=1):
        self.act, self.method, self.part, self.times = act, method, part, times


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256  # or connections that are opened at once hang

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.connections = set()

    def process_request(self, request, address):
        self.connections.add(request)
        super().process_request(request, address)

    def shutdown_request(self, request):
        self.connections.discard(request)
        super().shutdown_request(request)

    def hang_up(self):
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request, address):
        if not isinstance(sys.exc_info()[1], ConnectionError):  # clients hang up
            super().handle_error(request, address)


class Store:
    """objects: (bucket, key) -> bytes. Without a bucket's name in a path's first segment the same objects are plain HTTP's."""

    def __init__(self):
        self.objects, self.uploads, self.faults, self.requests = {}, {}, [], []
        self.keys = {KEY: (SECRET, "")}  # key: secret and session token
        self.anonymous = set()  # buckets that need no signature
        self.preconditions = True  # whether If-Match is obeyed
        self.delay_s = 0  # before each reply
        self.busy = self.most_busy = 0  # requests under way; the most at once
        self.chaos = None  # random.Random: each twentieth request fails in one of several ways
        self.lock = threading.Lock()
        store = self

        class Handler(RequestHandler):
            pass

        Handler.store = store
        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def restart(self, after_s):
        """Ends all connections; listens again on the same port after a while."""
        port = self.server.server_address[1]
        self.server.shutdown()
        self.server.server_close()
        self.server.hang_up()
        time.sleep(after_s)
        self.server = Server(("127.0.0.1", port), self.server.RequestHandlerClass)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def put(self, bucket, key, data):
        self.objects[bucket, key] = bytes(data)

    def fail(self, act, **where):
        self.faults.append(Fault(act, **where))

    def environment(self, **changes):
        """The variables of a client, without those of the machine."""
        return {"AWS_ENDPOINT_URL_S3": self.url, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION,
                "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/nonexistent", "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
                "no_proxy": "127.0.0.1", **changes}

    def chaotic_fault(self):
        with self.lock:
            if self.chaos and self.chaos.random() < 0.05:
                return self.chaos.choice([status(503, "SlowDown"), status(500), reset, short(0.3), short(0)])
        return None

    def take_fault(self, method, path):
        with self.lock:
            for fault in self.faults:
                if fault.times and method == fault.method and fault.part in path:
                    fault.times -= 1
                    return fault.act
        return None


@functools.lru_cache(maxsize=16)
def etag(data):
    return '"' + hashlib.md5(data).hexdigest() + '"'


def digest(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


class RequestHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def reply(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD" and body:
            self.wfile.write(body)

    def refuse(self, status, code, message="", headers=()):
        self.reply(status, f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode(), headers)

    def signature(self, key, secret, scope, names, time, payload):
        """The signature of this request ("Create a signed AWS API request")."""
        path, _, query = self.path.partition("?")
        query = "&".join(sorted(part if "=" in part else part + "=" for part in query.split("&"))) if query else ""
        headers = "".join(f"{name}:{' '.join((self.headers[name] or '').split())}\n" for name in names)
        canonical = "\n".join((self.command, path, query, headers, ";".join(names), payload))
        text = "\n".join(("AWS4-HMAC-SHA256", time, scope, hashlib.sha256(canonical.encode()).hexdigest()))
        sign = ("AWS4" + secret).encode()
        for part in scope.split("/"):
            sign = digest(sign, part)
        return digest(sign, text).hex()

    def allowed(self, bucket, body):
        """Whether the request is signed by a known key; answers otherwise."""
        match = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(.+), *SignedHeaders=([^,]+), *Signature=([0-9a-f]+)",
                             self.headers["Authorization"] or "")
        if not match:
            if bucket in self.store.anonymous and not self.headers["Authorization"]:
                return True
            self.refuse(403, "AccessDenied", "Access Denied")
            return False
        key, scope, names, signature = match.groups()
        names = names.split(";")
        payload = self.headers["x-amz-content-sha256"] or ""
        if key not in self.store.keys:
            self.refuse(403, "InvalidAccessKeyId", "The key does not exist")
            return False
        secret, token = self.store.keys[key]
        required = ["host", "x-amz-date", "x-amz-content-sha256"] + (["x-amz-security-token"] if token else [])
        if token and self.headers["x-amz-security-token"] != token:
            self.refuse(400, "ExpiredToken", "The provided token has expired.")
            return False
        good = (all(name in names for name in required) and scope.split("/")[1:] == [REGION, "s3", "aws4_request"]
                and payload in ("UNSIGNED-PAYLOAD", hashlib.sha256(body).hexdigest())
                and hmac.compare_digest(signature, self.signature(key, secret, scope, names, self.headers["x-amz-date"], payload)))
        if not good:
            self.refuse(403, "SignatureDoesNotMatch", "The signature does not match")
        return good

    def handle_request(self):
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        with self.store.lock:
            self.store.requests.append((self.command, self.path, dict(self.headers)))
            self.store.busy += 1
            self.store.most_busy = max(self.store.most_busy, self.store.busy)
        try:
            time.sleep(self.store.delay_s)
            self.answer_request(body)
        finally:
            with self.store.lock:
                self.store.busy -= 1

    def answer_request(self, body):
        path, _, query = self.path.partition("?")
        act = self.store.take_fault(self.command, self.path) or self.store.chaotic_fault()
        if act and act(self):
            return
        bucket, _, key = urllib.parse.unquote(path.lstrip("/")).partition("/")
        if bucket == "plain":  # plain HTTP, without signatures
            bucket, _, key = key.partition("/")
        elif not self.allowed(bucket, body):
            return
        arguments = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        getattr(self, "do_" + self.command.lower())(bucket, key, arguments, body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_request

    def do_get(self, bucket, key, arguments, body):
        data = self.store.objects.get((bucket, key))
        if data is None:
            return self.refuse(404, "NoSuchKey", "The specified key does not exist.")
        if self.store.preconditions and self.headers["If-Match"] not in (None, etag(data)):
            return self.refuse(412, "PreconditionFailed")
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"] or "")
        common = [("ETag", etag(data)), ("Last-Modified", email.utils.formatdate(0, usegmt=True))]
        if not match:
            return self.reply(200, data, common)
        first, last = int(match[1]), min(int(match[2]), len(data) - 1)
        if first > last:
            return self.refuse(416, "InvalidRange", headers=[("Content-Range", f"bytes */{len(data)}")])
        return self.reply(206, data[first:last + 1], common + [("Content-Range", f"bytes {first}-{last}/{len(data)}")])

    def do_head(self, bucket, key, arguments, body):
        data = self.store.objects.get((bucket, key))
        if data is None:
            self.reply(404)
        else:
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("ETag", etag(data))
            self.end_headers()

    def do_put(self, bucket, key, arguments, body):
        if "uploadId" not in arguments:
            self.store.put(bucket, key, body)
        else:
            parts = self.store.uploads.get((bucket, key, arguments["uploadId"]))
            if parts is None:
                return self.refuse(404, "NoSuchUpload")
            parts[int(arguments["partNumber"])] = body
        return self.reply(200, headers=[("ETag", etag(body))])

    def do_post(self, bucket, key, arguments, body):
        if "uploads" in arguments:
            upload = f"id/{len(self.store.uploads)}+a&b"  # needs an encoding
            self.store.uploads[bucket, key, upload] = {}
            escaped = upload.replace("&", "&amp;")
            return self.reply(200, f"<R><Bucket>{bucket}</Bucket><UploadId>{escaped}</UploadId></R>".encode())
        parts = self.store.uploads.pop((bucket, key, arguments["uploadId"]), None)
        if parts is None:
            return self.refuse(404, "NoSuchUpload")
        listed = [(int(n), tag) for n, tag in re.findall(rb"<PartNumber>(\d+)</PartNumber><ETag>([^<]+)</ETag>", body)]
        wanted = [(n, etag(part).encode()) for n, part in sorted(parts.items())]
        if listed != wanted or any(len(part) < 5 << 20 for _, part in sorted(parts.items())[:-1]):
            return self.refuse(400, "InvalidPart")
        self.store.put(bucket, key, b"".join(part for _, part in sorted(parts.items())))
        return self.reply(200, b"<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>")

    def do_delete(self, bucket, key, arguments, body):
        if "uploadId" in arguments:
            self.store.uploads.pop((bucket, key, arguments["uploadId"]), None)
        else:
            self.store.objects.pop((bucket, key), None)
        self.reply(204)


# Faults: take the handler, and return True if they have answered.


def status(code, name="", headers=()):
    def act(handler):
        handler.refuse(code, name, headers=headers)
        return True

    return act


def reset(handler):
    """Ends the connection without a reply."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.close_connection = True
    handler.connection.close()
    return True


def hang(handler):
    """Never answers: waits until the client hangs up."""
    handler.rfile.read(1)
    handler.close_connection = True
    return True


def raw(text, then_close=True):
    """Sends bytes as they are."""

    def act(handler):
        handler.wfile.write(text if isinstance(text, bytes) else text.encode())
        handler.close_connection = then_close
        return True

    return act


def short(share=0.5):
    """Announces the whole range, sends a part of it, and closes."""

    def act(handler):
        if handler.command != "GET":
            return False
        bucket, _, key = urllib.parse.unquote(handler.path.partition("?")[0].lstrip("/")).partition("/")
        if bucket == "plain":
            bucket, _, key = key.partition("/")
        data = handler.store.objects[bucket, key]
        first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", handler.headers["Range"]).groups())
        last = min(last, len(data) - 1)
        handler.send_response(206)
        handler.send_header("ETag", etag(data))
        handler.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        handler.send_header("Content-Length", str(last - first + 1))
        handler.end_headers()
        handler.wfile.write(data[first:first + int((last - first + 1) * share)])
        handler.close_connection = True
        return True

    return act


def main():
    """object_store.py VARIABLES KEY=FILE...: serves files from the bucket "bucket", until the parent ends. Writes a client's variables to a file for a shell."""
    store = Store()
    for given in sys.argv[2:]:
        key, _, path = given.partition("=")
        with open(path, "rb") as file:
            store.put("bucket", key, file.read())
    with open(sys.argv[1] + ".new", "w") as file:
        file.writelines(f"export {name}={value}\n" for name, value in store.environment().items())
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.2)


if __name__ == "__main__":
    main()
