// Starts `dlc lsp` and lets the editor speak with it.
"use strict";

const { workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

exports.activate = () => {
  const command = workspace.getConfiguration("dlc").get("command");
  const options = { documentSelector: [{ language: "dlm" }] };
  client = new LanguageClient("dlc", "dlc", { command, args: ["lsp"] }, options);
  return client.start();
};

exports.deactivate = () => client && client.stop();
