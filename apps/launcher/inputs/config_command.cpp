#include "launcher/inputs/config_command.h"

#include <fmt/core.h>

#include <cstdio>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/text/command_line.h"
#include "config/resolve/resolve.h"
#include "config/schema/schema.h"

namespace dslaunch::launcher {
namespace {

struct CheckArguments {
    std::string file;
    bool json = false;
    int64_t world_size = 0;  // 0: not given
    std::vector<std::string> overrides;
};

int check_config(const CheckArguments& arguments) {
    config::Resolved resolved;
    try {
        config::TrainConfig config = config::load_config(arguments.file);
        for (const std::string& assignment : arguments.overrides)
            config::apply_override(config, assignment);
        config::ResolveOptions options;
        if (arguments.world_size > 0) options.world_size = arguments.world_size;
        resolved = config::resolve(config, options);
    } catch (const Error& error) {
        if (error.code() != ExitCode::kConfig) throw;
        resolved.problems.push_back({"", error.what(), ""});
    }
    if (arguments.json) fmt::print("{}", config::resolved_json(resolved));
    if (resolved.problems.empty()) {
        if (!arguments.json) fmt::print("{}", config::resolved_table(resolved));
        return int(ExitCode::kOk);
    }
    for (const config::Problem& problem : resolved.problems)
        fmt::print(stderr, "{}\n", problem.text());
    return int(ExitCode::kConfig);
}

}  // namespace

int config_command(std::span<const std::string> arguments) {
    CLI::App app("Check a config, list the keys", "dslaunch config");
    app.require_subcommand(1);
    CheckArguments parsed;
    CLI::App* check =
        app.add_subcommand("check", "Print what a config resolves to, or all its problems");
    check->add_option("FILE", parsed.file, "ds_config.json, or YAML by the same keys")->required();
    check->add_flag("--json", parsed.json, "Print JSON");
    check
        ->add_option("--world-size,--world_size", parsed.world_size,
                     "Ranks, to solve the batch sizes")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
    check->add_option("--set", parsed.overrides, "a.b=c, may be repeated")->expected(1)->take_all();
    bool markdown = false;
    CLI::App* keys =
        app.add_subcommand("keys", "List every key with type, default, status and meaning");
    keys->add_flag("--markdown", markdown, "As docs/config-keys.md");
    if (!parse_command_line(app, {arguments.begin(), arguments.end()})) return 0;
    if (check->parsed()) return check_config(parsed);
    fmt::print("{}", markdown ? config::schema_markdown() : config::schema_text());
    return 0;
}

}  // namespace dslaunch::launcher
