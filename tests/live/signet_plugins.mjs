// Plays one conversation through a real Signet plugin, as its host would. Arguments: opencode|openclaw, plugin, URL.
import { pathToFileURL } from "node:url";

const [kind, plugin, url] = process.argv.slice(2);
process.env.SIGNET_DAEMON_URL = url;
const told = {};
const warnings = [];
console.warn = (...said) => warnings.push(said.map(String).join(" "));
const module = await import(pathToFileURL(plugin));

async function opencode() {
  const hooks = await (module.SignetPlugin ?? module.default)({ directory: "/home/user/tea" });
  const tool = (name, args) => hooks.tool[name].execute(args, {});
  const say = async (sessionID, text) => {
    await hooks["chat.message"]({ sessionID }, { parts: [{ type: "text", text }] });
    const output = { system: [] };
    await hooks["experimental.chat.system.transform"]({ sessionID }, output);
    return output.system.join("\n");
  };
  told.first = await say("s1", "My favourite tea is oolong.");
  told.stored = await tool("memory_store", { content: "The pot is blue", tags: ["pot", "colour"], importance: 0.9 });
  const id = /id: ([^)]+)\)/.exec(told.stored)[1];
  told.searched = await tool("memory_search", { query: "pot" });
  told.got = JSON.parse(await tool("memory_get", { id })).content;
  told.listed = await tool("memory_list", {});
  told.modified = await tool("memory_modify", { id, content: "The pot is green", reason: "repainted" });
  const compacting = { context: [] };
  await hooks["experimental.session.compacting"]({}, compacting);
  told.compacting = compacting.context.join("\n");
  await hooks.event({ event: { type: "session.compacted", summary: "We spoke of tea." } });
  await hooks.event({ event: { type: "session.idle" } });
  await new Promise((done) => setTimeout(done, 300));
  told.second = await say("s2", "Which tea is my favourite? And the pot?");
  told.again = await say("s2", "The pot, once more?");
  const coffee = await (module.SignetPlugin ?? module.default)({ directory: "/home/user/coffee" });
  told.elsewhere = await coffee.tool.memory_search.execute({ query: "pot" }, {});
  told.forgotten = await coffee.tool.memory_forget.execute({ id, reason: "broken" }, {});
  told.third = await say("s3", "Which pot have I?");
}

async function openclaw() {
  const tools = new Map(), hooks = new Map();
  const logger = { info() {}, debug() {}, warn: console.warn, error: console.warn };
  const api = {
    pluginConfig: { daemonUrl: url }, config: {}, logger,
    registerTool: (tool) => tools.set(tool.name, tool),
    registerService() {}, registerCli() {}, registerCommand() {},
    on: (name, hook) => hooks.set(name, hook),
  };
  await (module.default.register ?? module.default)(api);
  const tool = async (name, args) => (await tools.get(name).execute("c1", args)).content[0].text;
  const turn = async (sessionKey, prompt, messages) => {
    const ctx = { sessionKey, agentId: "main" };
    const given = await hooks.get("before_prompt_build")({ prompt, messages }, ctx);
    await hooks.get("agent_end")({}, ctx);
    return given?.prependContext ?? "";
  };
  told.first = await turn("s1", "My favourite tea is oolong.", []);
  told.stored = await tool("memory_store", { content: "The pot is blue", tags: "pot" });
  told.searched = await tool("memory_search", { query: "pot" });
  const id = /[(: ]id:? ([^)\s]+)/.exec(told.stored)?.[1];
  if (id) {
    told.modified = await tool("memory_modify", { id, content: "The pot is green", reason: "repainted" });
    told.got = await tool("memory_get", { id });
  }
  await new Promise((done) => setTimeout(done, 300));
  told.second = await turn("s2", "Which tea is my favourite? And the pot?", []);
  if (id) told.forgotten = await tool("memory_forget", { id, reason: "broken" });
}

await (kind === "opencode" ? opencode() : openclaw());
console.log(JSON.stringify({ ...told, warnings }));
process.exit(0);
