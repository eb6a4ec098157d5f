// A browser starts no worker for a page from disk. For such a page, this one runs the search in a hidden frame.
// The theme's worker looks for its name, and waits for importScripts.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      const inner = frame.contentWindow
      const load = (address) =>
        new Promise((done, failed) => {
          const script = inner.document.createElement("script")
          script.onload = done
          script.onerror = failed
          script.src = address
          inner.document.body.append(script)
        })
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      inner.importScripts = (...addresses) =>
        addresses.reduce((before, address) => before.then(() => load(address)), Promise.resolve())
      this.inner = inner
      this.ready = load(url)
    }
    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
}
