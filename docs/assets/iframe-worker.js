// Search of a site that is opened from disk: browsers start no worker from file://, so a hidden frame takes its place.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.appendChild(frame);
      this.inner = frame.contentWindow;
      window.addEventListener("message", (event) => {
        if (event.source !== this.inner) return;
        this.dispatchEvent(new MessageEvent("message", { data: event.data }));
      });
      const page = frame.contentDocument;
      page.open();
      page.write(
        "<script>window.postMessage = (data) => parent.postMessage(data, '*');" +
          "window.importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done) => {" +
          "const script = document.createElement('script'); script.src = url; script.onload = done;" +
          "document.head.appendChild(script); })), Promise.resolve());</" + "script>" +
          `<script src="${url}"></` + "script>"
      );
      page.close();
      this.ready = new Promise((done) => frame.addEventListener("load", done));
    }
    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {}
  };
}
