#include "launcher/inputs/config_command.h"

#include <fmt/core.h>

#include <cstdio>
#include <vector>

#include "base/error.h"
#include "base/text/columns.h"
#include "base/text/command_line.h"
#include "config/resolve/resolve.h"
#include "config/schema/schema.h"

namespace dslaunch::launcher {
namespace {

struct CheckArguments {
    std::string file;
    bool json = false;
    int64_t world_size = 0;  // 0: not given
    int64_t steps = 0;       // 0: not given
    std::vector<std::string> overrides;
};

int check_config(const CheckArguments& arguments) {
    config::Resolved resolved;
    try {
        config::TrainConfig config = config::load_config(arguments.file);
        for (const std::string& assignment : arguments.overrides)
            config::apply_override(config, assignment);
        if (arguments.steps > 0)
            config::apply_override(config, fmt::format("dslaunch.steps={}", arguments.steps),
                                   "--steps");
        config::ResolveOptions options;
        if (arguments.world_size > 0) options.world_size = arguments.world_size;
        resolved = config::resolve(config, options);
    } catch (const Error& error) {
        if (error.code() != ExitCode::kConfig) throw;
        resolved.problems.push_back({"", error.what(), ""});
    }
    if (arguments.json) fmt::print("{}", config::resolved_json(resolved));
    if (resolved.problems.empty()) {
        if (!arguments.json)
            fmt::print("{}", config::resolved_table(resolved, terminal_columns(1)));
        return int(ExitCode::kOk);
    }
    for (const config::Problem& problem : resolved.problems)
        fmt::print(stderr, "{}\n", problem.text());
    return int(ExitCode::kConfig);
}

}  // namespace

int config_command(std::span<const std::string> arguments) {
    CommandLine app({.does = "Checks a config, or lists the keys.",
                     .examples = {"dslaunch config check ds_config.json"},
                     .docs = "docs/config-keys.md"},
                    "dslaunch config");
    CheckArguments parsed;
    CommandLine& check =
        app.subcommand("check", {.does = "Prints what a config resolves to, or all its problems.",
                                 .examples = {"dslaunch config check ds_config.json --world-size 8",
                                              "dslaunch config check ds_config.json --set "
                                              "zero_optimization.stage=3"},
                                 .exit_codes = "65 when the config has problems.",
                                 .docs = "docs/config-keys.md"});
    check.add("FILE", parsed.file, "ds_config.json, or YAML by the same keys").required();
    check.add("--json", parsed.json, "one JSON object");
    check.add("--world-size N", parsed.world_size, "ranks, to solve the batch sizes")
        .range(int64_t{1}, int64_t{1} << 20);
    check.add("--steps N", parsed.steps, "optimizer steps, which total_num_steps `auto` is")
        .range(int64_t{1}, int64_t{1} << 40);
    check.add("--set KEY=VALUE", parsed.overrides,
              "override one value, as optimizer.params.lr=1e-4; repeatable");
    bool markdown = false;
    CommandLine& keys =
        app.subcommand("keys", {.does = "Lists every key with type, default, status and meaning.",
                                .examples = {"dslaunch config keys | grep offload"},
                                .docs = "docs/config-keys.md"});
    keys.add("--markdown", markdown, "as docs/config-keys.md");
    if (!app.parse({arguments.begin(), arguments.end()})) return 0;
    if (app.chose("check")) return check_config(parsed);
    fmt::print("{}",
               markdown ? config::schema_markdown() : config::schema_text(terminal_columns(1)));
    return 0;
}

}  // namespace dslaunch::launcher
