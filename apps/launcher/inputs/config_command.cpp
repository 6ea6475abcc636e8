#include "launcher/inputs/config_command.h"

#include "base/error.h"
#include "config/resolve/resolve.h"
#include "config/schema/schema.h"

#include <fmt/core.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

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

void add_config_command(CLI::App& app, int& exit_code) {
    CLI::App* config = app.add_subcommand("config", "Check a config, list the keys");
    config->require_subcommand(1);

    auto arguments = std::make_shared<CheckArguments>();  // shared with the callback, which
                                                          // outlives this call
    CLI::App* check =
        config->add_subcommand("check", "Print what a config resolves to, or all its problems");
    check->add_option("FILE", arguments->file, "ds_config.json, or YAML by the same keys")
        ->required();
    check->add_flag("--json", arguments->json, "Print JSON");
    check
        ->add_option("--world-size,--world_size", arguments->world_size,
                     "Ranks, to solve the batch sizes")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
    check->add_option("--set", arguments->overrides, "a.b=c, may be repeated")
        ->expected(1)
        ->take_all();
    check->callback([arguments, &exit_code] { exit_code = check_config(*arguments); });

    auto markdown = std::make_shared<bool>(false);  // as above
    CLI::App* keys =
        config->add_subcommand("keys", "List every key with type, default, status and meaning");
    keys->add_flag("--markdown", *markdown, "As docs/config-keys.md");
    keys->callback([markdown, &exit_code] {
        fmt::print("{}", *markdown ? config::schema_markdown() : config::schema_text());
        exit_code = int(ExitCode::kOk);
    });
}

}  // namespace dslaunch::launcher
