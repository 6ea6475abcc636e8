// `dslaunch config check FILE`, `config keys` and `config schema`: show what a config means before
// anything runs.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/new_files.h"
#include "base/path.h"
#include "base/screen.h"
#include "base/text.h"
#include "base/text/command_line.h"
#include "base/text/words.h"
#include "config/editor/json_schema.h"
#include "config/resolve/resolve.h"
#include "config/schema/schema.h"
#include "launcher/run/commands.h"
#include "storage/disk/output_place.h"
#include "storage/files/mapped_file.h"
#include "storage/files/zip_archive.h"
#include "storage/huggingface/model_folder.h"
#include "storage/named/place.h"

namespace dslaunch::launcher {
namespace {

struct CheckArguments {
    std::string file;
    std::string model;  // a Hugging Face folder; empty: FILE's own folder, or none
    bool json = false;
    bool all = false;
    int64_t world_size = 0;  // 0: not given
    int64_t steps = 0;       // 0: not given
    std::vector<std::string> overrides;
};

struct KeysArguments {
    std::vector<std::string> names;  // empty: all keys
    bool markdown = false;
};

struct SchemaArguments {
    std::string section;  // empty: the whole config
    std::string output;   // empty or "-": stdout
    bool replaces = false;
};

// Prints the values that were set, the values that follow from them, and a line that says that
// there is no problem. With --all, prints the defaults too.
void print_config(config::Resolved resolved, const CheckArguments& arguments) {
    const size_t all = resolved.values.size();
    if (!arguments.all)
        std::erase_if(resolved.values,
                      [](const config::ResolvedValue& value) { return value.origin == "default"; });
    const size_t left_out = all - resolved.values.size();
    fmt::print("{}", config::resolved_table(resolved, terminal_columns(1)));
    fmt::print("ok: no problem in {}{}\n", printable(arguments.file),
               left_out == 0 ? ""
                             : fmt::format("; {} other keys have their default (--all shows them)",
                                           left_out));
}

// Returns the lines of TABLE about the key NAME itself, without keys that only begin with NAME.
std::string lines_of_key(const std::string& table, const std::string& name) {
    std::string found;
    for (const std::string& line : split(table, '\n')) {
        const bool begins = !line.empty() && line.front() != ' ';
        if (begins && !found.empty()) break;
        if (!found.empty() || line.starts_with(name + " ")) found += line + "\n";
    }
    return found;
}

// Prints the key TEXT, or, if there is no such key, all keys whose names contain TEXT.
void print_keys(const std::string& text) {
    const std::string table = config::schema_text(terminal_columns(1));
    if (text.empty()) return fmt::print("{}", table);
    std::string shown, with_words;
    std::vector<std::string> names;
    // Keys that contain all words of TEXT are shown if no key contains TEXT itself. For example,
    // `zero_stage` finds zero_optimization.stage.
    const std::vector<std::string> words = split(text, '_');
    bool is_shown = false, has_words = false;
    for (const std::string& line : split(table, '\n')) {
        if (line.empty()) continue;
        if (line.front() != ' ') {
            names.push_back(line.substr(0, line.find(' ')));
            is_shown = names.back().find(text) != std::string::npos;
            has_words = std::ranges::all_of(words, [&](const std::string& word) {
                return names.back().find(word) != std::string::npos;
            });
        }
        if (is_shown) shown += line + "\n";
        if (has_words) with_words += line + "\n";
    }
    if (shown.empty()) shown = with_words;
    const auto near = nearest(text, names);
    if (std::ranges::count(names, text) > 0) shown = lines_of_key(table, text);
    if (shown.empty())
        fail(ExitCode::kUsage, "config keys: no key's name contains `{}`{}", printable(text),
             near ? fmt::format("; did you mean `{}`?", *near) : "");
    fmt::print("{}", shown);
}

// Adds to OPTIONS the facts that a run would read from the model in FOLDER. Throws Error{kInput}.
void look_at_model(const std::string& folder, config::ResolveOptions& options) {
    const storage::ModelFolder model = storage::open_model_folder(folder);
    options.model_is_folder = true;
    options.is_pretrained = !model.weights.empty();
    if (options.is_pretrained) options.model_dtype = model.config.dtype;
}

config::ResolveOptions resolve_options(const CheckArguments& arguments) {
    config::ResolveOptions options;
    if (arguments.world_size > 0) options.world_size = arguments.world_size;
    const std::string beside = folder_of(arguments.file);
    if (!arguments.model.empty()) {
        if (!storage::model_folder_of(arguments.model))
            fail(ExitCode::kInput, "--model {}: must be a folder with a config.json",
                 printable(arguments.model));
        look_at_model(arguments.model, options);
    } else if (std::filesystem::path(arguments.file).filename() == "ds_config.json" &&
               storage::model_folder_of(beside)) {
        look_at_model(beside, options);
    }
    return options;
}

// Reads the config FILE or, if FILE is a model's archive, the config that is packed in it. Throws
// Error{kConfig} if the archive contains no config, and Error{kInput} if FILE is no text.
config::TrainConfig read_config(const std::string& file) {
    constexpr const char* kConfigName = "ds_config.json";
    constexpr std::string_view kZip = "PK\x03\x04";
    constexpr size_t kStart = 4096;
    std::error_code unreadable;
    if (!std::filesystem::is_regular_file(file, unreadable)) {
        if (std::filesystem::is_directory(file, unreadable) &&
            !std::filesystem::exists(std::filesystem::path(file) / kConfigName, unreadable))
            storage::refuse_place(storage::place_at(file), storage::PlaceUse::kConfig);
        return config::load_config(file);
    }
    const storage::MappedFile mapped(file);
    const auto bytes = mapped.bytes();
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (text.substr(0, kStart).find('\0') != std::string_view::npos && !text.starts_with(kZip))
        storage::refuse_place(storage::place_at(file), storage::PlaceUse::kConfig);
    if (!text.starts_with(kZip)) return config::load_config(file);
    const storage::ZipArchive archive(file);
    const auto packed = archive.extra(kConfigName);
    if (!packed)
        fail(ExitCode::kConfig,
             "{}: no config is packed in this archive; `dslaunch pack {} --config FILE` adds one",
             printable(file), shell_word(file));
    return config::parse_config(*packed, fmt::format("{}:{}", file, kConfigName));
}

int check_config(const CheckArguments& arguments) {
    config::Resolved resolved;
    try {
        config::TrainConfig config = read_config(arguments.file);
        for (const std::string& assignment : arguments.overrides)
            config::apply_override(config, assignment);
        if (arguments.steps > 0)
            config::apply_override(config, fmt::format("dslaunch.steps={}", arguments.steps),
                                   "--steps");
        resolved = config::resolve(config, resolve_options(arguments));
    } catch (const Error& error) {
        if (error.code() != ExitCode::kConfig) throw;
        resolved.problems.push_back({"", error.what(), ""});
    }
    if (arguments.json) fmt::print("{}", config::resolved_json(resolved));
    if (resolved.problems.empty()) {
        if (!arguments.json) print_config(std::move(resolved), arguments);
        return int(ExitCode::kOk);
    }
    for (const config::Problem& problem : resolved.problems) print_message(problem.text());
    return int(ExitCode::kConfig);
}

void declare_check(CommandLine& app, CheckArguments& parsed) {
    CommandLine& check = app.subcommand(
        "check",
        {.does = "Prints the value of every key that a config sets, or all problems of the config.",
         .examples = {"dslaunch config check ds_config.json --world-size 8",
                      "dslaunch config check ds_config.json --set "
                      "zero_optimization.stage=3"},
         .exit_codes = "65 when the config has problems.",
         .docs = "docs/config-keys.md"});
    check
        .add("FILE", parsed.file,
             "ds_config.json, a YAML file with the same keys, or a model in which a config is "
             "packed")
        .required();
    check.add("--all", parsed.all, "also show keys that have their default value");
    check.add("--json", parsed.json, "print one JSON object with all keys");
    check.add("--world-size N", parsed.world_size, "number of ranks, used to compute batch sizes")
        .range(int64_t{1}, int64_t{1} << 20);
    check
        .add("--steps N", parsed.steps,
             "number of optimizer steps, used if total_num_steps is `auto`")
        .range(int64_t{1}, int64_t{1} << 40);
    check.add("--model DIR", parsed.model,
              "a Hugging Face folder: also show which values a run of this model would use for "
              "keys that the config does not set");
    check.add("--set KEY=VALUE", parsed.overrides,
              "override one value, such as optimizer.params.lr=1e-4; repeatable");
}

void declare_keys(CommandLine& app, KeysArguments& parsed) {
    CommandLine& keys = app.subcommand(
        "keys", {.does = "Lists every key with its type, default, status and meaning.",
                 .examples = {"dslaunch config keys | grep offload"},
                 .docs = "docs/config-keys.md"});
    keys.add("KEY", parsed.names, "only keys whose names contain one of these texts");
    keys.add("--markdown", parsed.markdown, "as docs/config-keys.md");
}

void declare_schema(CommandLine& app, SchemaArguments& parsed) {
    CommandLine& schema = app.subcommand(
        "schema",
        {.does = "Prints a JSON Schema of the config, for editors that check and complete "
                 "what you type.",
         .examples = {"dslaunch config schema > ds_config.schema.json",
                      "dslaunch config schema zero_optimization -o zero.schema.json"},
         .docs = "docs/reference/editors.md"});
    schema.add("SECTION", parsed.section, "only the schema of this section of the config");
    schema.add("-o,--output FILE", parsed.output, "write to FILE; default: stdout");
    schema.add("--force", parsed.replaces, storage::kForceHelp);
}

// Refuses a word after `config schema` that is not a section.
void require_section(const std::string& section) {
    const config::KeySpec* const key = config::find_key(section);
    if (key != nullptr && key->type == config::KeyType::kObject && !section.ends_with("[]")) return;
    std::error_code unreadable;
    if (std::filesystem::exists(section, unreadable))
        fail(ExitCode::kUsage,
             "config schema: {0} is not a section of the config; to check a config: dslaunch "
             "config check {0}",
             shell_word(section));
    if (key != nullptr)
        fail(ExitCode::kUsage,
             "config schema: {0} is a key, not a section: `dslaunch config keys {0}` shows its "
             "type and meaning",
             printable(section));
    std::vector<std::string> sections;
    for (const config::KeySpec& one : config::schema())
        if (one.type == config::KeyType::kObject) sections.push_back(one.path);
    auto near = nearest(section, sections);
    const auto longer = std::ranges::find_if(
        sections, [&](const std::string& one) { return one.starts_with(section); });
    if (!near && longer != sections.end()) near = *longer;
    fail(ExitCode::kUsage, "config schema: the config has no section `{}`{}", printable(section),
         near ? fmt::format("; did you mean `{}`?", *near)
              : "; `dslaunch config keys` lists sections and keys; to write the schema to a file, "
                "use -o FILE");
}

int print_schema(const SchemaArguments& arguments) {
    if (!arguments.section.empty()) require_section(arguments.section);
    const std::string text = config::json_schema(arguments.section);
    if (arguments.output.empty() || arguments.output == "-") {
        fmt::print("{}", text);
        return 0;
    }
    storage::require_new_file(arguments.output, arguments.replaces);
    write_file_atomically(arguments.output, text);
    print_message(fmt::format("dslaunch: the schema is in {}", printable(arguments.output)));
    return 0;
}

int list_keys(const KeysArguments& arguments) {
    if (arguments.markdown) {
        fmt::print("{}", config::schema_markdown());
        return 0;
    }
    if (arguments.names.empty()) print_keys("");
    for (const std::string& name : arguments.names) print_keys(name);
    return 0;
}

// Returns true if WORD is a part of a key's name, and is not a mistyped subcommand.
bool is_part_of_key(const std::string& word) {
    const std::vector<std::string> subcommands = {"check", "keys", "schema"};
    const auto near = nearest(word, subcommands);
    return word.size() > 2 && !near &&
           std::ranges::any_of(config::schema(), [&](const config::KeySpec& key) {
               return key.path.find(word) != std::string::npos;
           });
}

// Adds the subcommand that WORDS leave out: `config FILE` becomes `config check FILE`, and `config
// KEY` becomes `config keys KEY`. Also replaces synonyms, for example `validate` by `check`.
void make_plain(std::vector<std::string>& words) {
    static const std::map<std::string, const char*> kOthers = {
        {"validate", "check"}, {"lint", "check"}, {"verify", "check"},  {"test", "check"},
        {"explain", "keys"},   {"list", "keys"},  {"describe", "keys"}, {"key", "keys"},
        {"show", "keys"},      {"help", "--help"}};
    if (words.empty()) return;
    for (const char* make : {"init", "new", "create", "generate", "example", "template"})
        if (words[0] == make)
            fail(ExitCode::kUsage,
                 "config: a config is not needed: options and defaults are enough. To write one, "
                 "begin with {{}} and add keys, which `dslaunch config keys` lists; `dslaunch tune "
                 "MODEL --data FILE -o ds_config.json` writes one that is fast here");
    std::error_code unreadable;
    const std::string first = words[0];
    if (first == "check" || first == "keys" || first == "schema") return;
    if (const auto other = kOthers.find(first); other != kOthers.end()) {
        words[0] = other->second;
        const bool is_file =
            words.size() > 1 && std::filesystem::is_regular_file(words[1], unreadable);
        if (words[0] == "keys" && is_file) words[0] = "check";
    } else if (std::filesystem::is_regular_file(first, unreadable)) {
        words.insert(words.begin(), "check");
    } else if (is_part_of_key(first)) {
        words.insert(words.begin(), "keys");
    }
}

}  // namespace

int config_command(std::span<const std::string> arguments) {
    CommandLine app({.does = "Checks a config, lists the keys, or prints their JSON Schema.",
                     .examples = {"dslaunch config check ds_config.json"},
                     .docs = "docs/config-keys.md"},
                    "dslaunch config");
    CheckArguments check;
    KeysArguments keys;
    SchemaArguments schema;
    declare_check(app, check);
    declare_keys(app, keys);
    declare_schema(app, schema);
    std::vector<std::string> words(arguments.begin(), arguments.end());
    make_plain(words);
    if (!app.parse(words)) return 0;
    if (app.chose("check")) return check_config(check);
    return app.chose("schema") ? print_schema(schema) : list_keys(keys);
}

}  // namespace dslaunch::launcher
