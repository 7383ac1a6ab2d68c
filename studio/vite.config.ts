import { defineConfig } from "vite";

// File names without hashes and one chunk: the bundle is committed, and its differences stay small. The server tells
// browsers to check for changes, so that no hash is needed.
export default defineConfig({
  base: "./",
  build: {
    outDir: "../src/waycode/studio/page",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    rollupOptions: {
      output: {
        entryFileNames: "studio.js",
        assetFileNames: "studio[extname]",
        inlineDynamicImports: true,
      },
    },
  },
  server: {
    proxy: {
      "/api": {
        target: "http://127.0.0.1:8765",
        ws: true,
        changeOrigin: true,
        // The studio refuses other origins than its own.
        configure: (proxy) => {
          proxy.on("proxyReq", (request) => request.removeHeader("origin"));
          proxy.on("proxyReqWs", (request) => request.removeHeader("origin"));
        },
      },
    },
  },
});
