// The config's sections for monitors: their values, and mistakes in them.
#include <fmt/core.h>

#include <string>
#include <utility>

#include "config/schema/schema.h"
#include "resolved.h"
#include "support/catch.h"

namespace dslaunch {

using namespace config;
using namespace test;

TEST_CASE("the sections of monitors have DeepSpeed's defaults, and the values that are given") {
    const MonitorsConfig none = resolved("{}", 1).config.monitors;
    CHECK_FALSE(none.tensorboard.enabled);
    CHECK_FALSE(none.csv.enabled);
    CHECK(none.prometheus_file.empty());
    const Resolved on =
        resolved("{tensorboard: {enabled: true}, csv_monitor: {enabled: 'true'}}", 1);
    CHECK(on.notes.empty());
    const MonitorsConfig defaults = on.config.monitors;
    CHECK(defaults.tensorboard == MonitorFolder{true, "", "DeepSpeedJobName"});
    CHECK(defaults.csv == MonitorFolder{true, "", "DeepSpeedJobName"});
    const MonitorsConfig given =
        resolved(
            "{tensorboard: {enabled: true, output_path: a/b, job_name: c},"
            " wandb: {enabled: true, team: t, group: g},"
            " comet: {enabled: true, workspace: w, online: false, samples_log_interval: 7},"
            " dslaunch: {metrics: {prometheus: x.prom}}}",
            1)
            .config.monitors;
    CHECK(given.tensorboard == MonitorFolder{true, "a/b", "c"});
    CHECK(given.wandb == WandbConfig{true, "deepspeed", "t", "g"});
    CHECK(given.comet.workspace == "w");
    CHECK(given.comet.offline);
    CHECK(given.comet.interval_samples == 7);
    CHECK(given.prometheus_file == "x.prom");
    // A service's secret key is not stored.
    const Resolved keyed = resolved("{comet: {enabled: true, api_key: secret}}", 1);
    REQUIRE(keyed.notes.size() == 1);
    CHECK(keyed.notes[0].find("COMET_API_KEY") != std::string::npos);
    CHECK(keyed.notes[0].find("secret") == std::string::npos);
}

TEST_CASE("a section that sets keys but not its switch is warned of") {
    const std::pair<const char*, bool> rows[] = {
        {"{wandb: {project: x}}", true},
        {"{tensorboard: {output_path: a}}", true},
        {"{fp16: {loss_scale: 0}}", true},
        {"{flops_profiler: {enabled: null, profile_step: 3}}", true},
        {"{wandb: {project: x, enabled: false}}", false},
        {"{wandb: {project: x, enabled: true}}", false},
        {"{wandb: {}}", false},
        {"{timers: {throughput: {synchronized: true}}}", false},
        {"{autotuning: {fast: false}}", false},
        {"{zero_optimization: {stage: 1}}", false},
        {"{dslaunch: {data: {columns: {tokens: input_ids}}}}", false}};  // no section
    for (const auto& [text, is_told] : rows) {
        INFO(text);
        const Resolved result = resolved(text, 1);
        CHECK(result.problems.empty());
        REQUIRE(result.warnings.size() == (is_told ? 1 : 0));
        if (is_told)
            CHECK_THAT(
                result.warnings[0],
                Catch::Contains("has no effect, because the section does not set `enabled`"));
    }
}

TEST_CASE(
    "a mistake in a section of a monitor is an error, whether or not the section is enabled") {
    // Section, key and value, as a user mistypes them, and a part of the message.
    const char* cases[][4] = {
        {"tensorboard", "enable", "true", "`enabled`"},
        {"tensorboard", "Enabled", "true", "`enabled`"},
        {"tensorboard", "enabled", "tru", "must be true or false"},
        {"tensorboard", "output_dir", "x", "keys of `tensorboard`"},
        {"tensorboard", "outputpath", "x", "`output_path`"},
        {"tensorboard", "output_path", "5", "must be a string"},
        {"tensorboard", "jobname", "x", "`job_name`"},
        {"tensorboard", "log_dir", "x", "keys of `tensorboard`"},
        {"csv_monitor", "enabledd", "true", "`enabled`"},
        {"csv_monitor", "output-path", "x", "`output_path`"},
        {"csv_monitor", "job_names", "x", "`job_name`"},
        {"wandb", "projct", "x", "`project`"},
        {"wandb", "groups", "x", "`group`"},
        {"wandb", "entity", "x", "keys of `wandb`"},
        {"wandb", "name", "x", "unknown key"},
        {"comet", "apikey", "x", "`api_key`"},
        {"comet", "project_name", "x", "unknown key"},
        {"comet", "samples_log_intervall", "5", "`samples_log_interval`"},
        {"comet", "samples_log_interval", "0", "must be above 0"},
        {"comet", "mode", "creat", "must be one of get, create, get_or_create"},
        {"comet", "onlin", "false", "`online`"},
    };
    for (const auto& [section, key, value, message] : cases) {
        for (const char* before : {"", "enabled: false, ", "enabled: true, "}) {
            const bool repeats = std::string_view(key) == "enabled" && *before != '\0';
            if (repeats) continue;
            const std::string text =
                fmt::format("{{{}: {{{}{}: {}}}}}", section, before, key, value);
            INFO(text);
            const Resolved result = resolve(parse_config(text, "c"), {.world_size = 1});
            REQUIRE(result.problems.size() == 1);
            CHECK(result.problems[0].path.starts_with(section));
            CHECK(result.problems[0].message.find(message) != std::string::npos);
        }
    }
}

TEST_CASE("files of monitors are on this machine, and Prometheus' file has the ending it needs") {
    const std::pair<const char*, const char*> cases[] = {
        {"{tensorboard: {enabled: true, output_path: s3://b/x}}", "tensorboard.output_path"},
        {"{csv_monitor: {enabled: true, output_path: gs://b}}", "csv_monitor.output_path"},
        {"{dslaunch: {metrics: {prometheus: run.txt}}}", "dslaunch.metrics.prometheus"},
        // Nothing replaces these here, so a folder named `~` would be made.
        {"{tensorboard: {enabled: true, output_path: ~/tb}}", "tensorboard.output_path"},
        {"{csv_monitor: {enabled: true, output_path: $HOME/csv}}", "csv_monitor.output_path"},
        {"{dslaunch: {metrics: {prometheus: ~/run.prom}}}", "dslaunch.metrics.prometheus"},
    };
    for (const auto& [text, path] : cases) {
        INFO(text);
        const Resolved result = resolve(parse_config(text, "c"), {.world_size = 1});
        REQUIRE(result.problems.size() == 1);
        CHECK(result.problems[0].path == path);
    }
    CHECK(resolve(parse_config("{tensorboard: {output_path: s3://b}}", "c"), {.world_size = 1})
              .problems.empty());
}

}  // namespace dslaunch
