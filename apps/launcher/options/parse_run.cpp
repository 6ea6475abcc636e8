#include "launcher/options/parse_run.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/path.h"
#include "base/text.h"
#include "base/text/file_faults.h"
#include "base/text/option_name.h"
#include "base/text/words.h"
#include "config/resolve/option_overrides.h"
#include "launcher/options/option_table.h"
#include "storage/files/input_file.h"
#include "storage/huggingface/model_folder.h"
#include "storage/huggingface/named_place.h"
#include "storage/named/place.h"

namespace dslaunch::launcher {
namespace {

// Chooses the device. --device and --set dslaunch.device=… mean the same; both also affect the
// choice of hosts. Two different values are an error.
void settle_device(RunOptions& options) {
    constexpr std::string_view kKey = "dslaunch.device=";
    for (const std::string& assignment : options.set) {
        if (!assignment.starts_with(kKey)) continue;
        std::string value = assignment.substr(kKey.size());
        std::erase(value, '"');
        const launch::DeviceRequest asked = value == "cpu"    ? launch::DeviceRequest::kCpu
                                            : value == "cuda" ? launch::DeviceRequest::kCuda
                                                              : launch::DeviceRequest::kAuto;
        if (asked == launch::DeviceRequest::kAuto) continue;
        if (options.device != launch::DeviceRequest::kAuto && options.device != asked) {
            fail(ExitCode::kUsage,
                 "--set {} contradicts --device {} or another --set; give one of them",
                 printable(assignment),
                 options.device == launch::DeviceRequest::kCpu ? "cpu" : "cuda");
        }
        options.device = asked;
    }
}

// Returns the row of `run` in GROUP whose full name is WORD; null if there is none.
const OptionRow* row_in(Group group, const std::string& word) {
    const OptionRow* const row = find_option_row(word);
    return row != nullptr && row->group == group ? row : nullptr;
}

// Returns the row of `run` for WORD, which may also be the option's name in another tool; null if
// there is none.
const OptionRow* row_of_any_name(const std::string& word) {
    if (const OptionRow* const row = find_option_row(word)) return row;
    const std::string name = with_dashes(word.substr(0, word.find('=')));
    for (const auto& [other, own] : kOtherOptionNames)
        if (name == fmt::format("--{}", other)) return find_option_row(fmt::format("--{}", own));
    return nullptr;
}

// Refuses the word ARGUMENTS[INDEX] if it is a value for an option that takes no value, as in
// `--bf16 True`. (transformers' Trainer accepts this form.) The words `true` and `false` are
// refused only after options for training, because `true` is also the name of a program.
void refuse_switch_value(std::span<const std::string> arguments, size_t index) {
    static constexpr std::array<std::string_view, 4> kValues = {"True", "False", "true", "false"};
    const std::string& word = arguments[index];
    if (index == 0 || std::ranges::find(kValues, word) == kValues.end()) return;
    const OptionRow* const row = row_of_any_name(arguments[index - 1]);
    if (row == nullptr || arguments[index - 1].find('=') != std::string::npos) return;
    if (row->group != Group::kTraining && (word == "true" || word == "false")) return;
    if (row->value_name.empty() || row->value_name.starts_with('['))
        fail(ExitCode::kUsage, "{} takes no value: leave {} out", arguments[index - 1],
             lower(word) == "true" ? fmt::format("`{}`", word)
                                   : fmt::format("both it and `{}`", word));
}

// Returns advice if --resume was given without a folder, because the user may mean the unexpected
// word WORD as the folder. The advice begins with "; ". Otherwise returns an empty text.
std::string resume_advice(const RunOptions& o, const std::string& word) {
    if (o.resume != "auto") return "";
    if (word == "best") return "; to resume from the best checkpoint, write --resume=best";
    if (word == "latest" || word == "last" || word == "auto")
        return fmt::format("; --resume alone means the newest checkpoint: leave `{}` out", word);
    return "; to resume from a folder, write --resume=DIR";
}

// Returns advice about the unexpected word ARGUMENTS[INDEX], based on the last option before it.
std::string word_advice(const RunOptions& o, std::span<const std::string> arguments, size_t index) {
    size_t option = index;
    while (option > 0 && !arguments[option].starts_with('-')) --option;
    const OptionRow* const row = row_of_any_name(arguments[option]);
    const std::string names = row == nullptr ? "" : std::string(row->names);
    const bool has_value = option + 1 < index || arguments[option].find('=') != std::string::npos;
    if (names == "lora" && has_value)
        return fmt::format("; write the value of --lora as one word: {},{}",
                           printable(arguments[index - 1]), printable(arguments[index]));
    if (has_value && (names == "data" || names == "eval-data" || names.starts_with("output,")))
        return fmt::format("; --{} takes only one {}, but the shell replaces `*` by several names",
                           split(names, ',').front(), names.ends_with("data") ? "file" : "folder");
    std::error_code unreadable;
    const std::string& word = arguments[index];
    if (const std::string name =
            split_name(o.target, arguments.subspan(index), o.working_directory);
        !name.empty())
        return fmt::format("; a name with a blank needs quotes: {}", shell_word(name));
    if (row != nullptr && !has_value && row->value_name.starts_with('[') && names != "resume")
        return fmt::format("; the value of --{0} follows after `=`: --{0}={1}", names,
                           shell_word(word));
    if (o.resume != "auto" && o.first_training_option.empty())
        return std::filesystem::exists(std::filesystem::path(o.working_directory) / word,
                                       unreadable)
                   ? fmt::format("; to train on this data, use --data {}", shell_word(word))
                   : fmt::format("; to continue a prompt, use: dslaunch generate {} --prompt {}",
                                 shell_word(o.target), shell_word(word));
    return resume_advice(o, word);
}

// Refuses a target that is missing or is not a model, although training options show that it is
// meant as a model.
void require_model_here(const RunOptions& o, launch::TargetKind kind) {
    if (kind != launch::TargetKind::kProgram || o.no_python ||
        (o.first_training_option.empty() && !o.verifies))
        return;
    const std::string path =
        (std::filesystem::path(o.working_directory) / o.target).lexically_normal().string();
    std::error_code unreadable;
    if (storage::is_hub_name(o.target, o.working_directory) ||
        (o.verifies && !std::filesystem::exists(path, unreadable)))
        storage::fail_missing_model(o.target);
    if (std::filesystem::is_directory(path, unreadable) && resume_advice(o, o.target).empty())
        static_cast<void>(storage::model_at(path_from_here(path)));
    if (access(path.c_str(), X_OK) == 0) return;
    storage::refuse_part(path_from_here(path));
    storage::require_target(path);
}

// Refuses a config or recipe that is given as the model. TARGET may be the first word after
// `train`.
void refuse_recipe(const std::string& target) {
    for (const char* ending : {".yml", ".yaml"})
        if (target.ends_with(ending))
            fail(ExitCode::kUsage,
                 "{} is not a model. If it is a ds_config, use: dslaunch MODEL --data FILE "
                 "--config {}. Recipes of axolotl, LLaMA-Factory and TRL are not supported: give "
                 "the model of the recipe as MODEL, and its data to `dslaunch data prepare`",
                 printable(target), shell_word(target));
}

void check_target(const RunOptions& o) {
    if (o.target.empty()) {
        fail(ExitCode::kUsage,
             "TARGET is missing: give a Hugging Face folder, another model (train.pt2, train.pt), "
             "a Python script or a program; see dslaunch --help");
    }
    refuse_recipe(o.target);
    if (o.target == "train" && !o.arguments.empty()) refuse_recipe(o.arguments.front());
    if (o.target.ends_with(".ipynb"))
        fail(ExitCode::kUsage,
             "{} is a notebook, which cannot be started as a program; convert it to a script: "
             "jupyter nbconvert --to script {}",
             printable(o.target), shell_word(o.target));
    const launch::TargetKind kind = target_kind_of(o);
    if (!o.autotuning.empty() && kind == launch::TargetKind::kPython)
        fail(ExitCode::kUsage,
             "--autotuning: {} is a script, whose training dslaunch cannot change, so it is not "
             "tuned here: leave --autotuning out, or tune a model: dslaunch tune MODEL --data FILE",
             printable(o.target));
    require_model_here(o, kind);
    if (kind != launch::TargetKind::kModel && !o.first_training_option.empty()) {
        if (const std::string name = split_name(o.target, o.arguments, o.working_directory);
            !name.empty())
            fail(ExitCode::kUsage, "a name with a blank needs quotes: {}", shell_word(name));
        fail(ExitCode::kUsage,
             "{} is an option for training a model, but `{}` is not a model; write the option "
             "after the target if it belongs to your program{}",
             o.first_training_option, printable(o.target), resume_advice(o, o.target));
    }
    if (kind == launch::TargetKind::kModel && (o.module || o.no_python)) {
        fail(ExitCode::kUsage, "--{} cannot be used with a model",
             o.module ? "module" : "no_python");
    }
    if (o.module && o.no_python)
        fail(ExitCode::kUsage, "--module and --no_python cannot be used together");
}

void check_pairs(const RunOptions& o) {
    if (o.help_all)
        fail(ExitCode::kUsage, "--all only extends the help: dslaunch run --help --all");
    if (o.json && !o.dry_run) fail(ExitCode::kUsage, "--json needs --dry-run");
    if (o.no_output && !o.output.empty())
        fail(ExitCode::kUsage, "--no-output and --output cannot be used together");
    if (o.standalone && !o.hostfile.empty())
        fail(ExitCode::kUsage, "--standalone and --hostfile cannot be used together");
    const bool meets = o.filter.num_nodes.value_or(1) > 1 && !o.master_address.empty();
    if (o.node_rank.value_or(0) > 0 && !o.no_ssh && !meets) {
        fail(ExitCode::kUsage,
             "--node_rank {}: run dslaunch on one machine only, since it starts every node itself; "
             "or give --no_ssh on every node, or give --nnodes N and --rdzv_endpoint on every "
             "node, as for torchrun",
             *o.node_rank);
    }
    if (o.binding.mode == launch::BindMode::kNone && !o.binding.core_list.empty()) {
        fail(ExitCode::kUsage, "--bind none and --bind_core_list cannot be used together");
    }
    if (o.force_multi && o.launcher == "local") {
        fail(ExitCode::kUsage, "--force_multi and --launcher local cannot be used together");
    }
}

// Refuses options that give one key different values: two --set, or --set and another option.
void check_set(const RunOptions& o) {
    const auto halves = [](const std::string& assignment) {
        const size_t equals = assignment.find('=');
        std::string value = assignment.substr(equals + 1);
        std::erase_if(value, [](char c) { return c == '"' || c == '\'' || c == ' '; });
        return std::pair{assignment.substr(0, equals), value};
    };
    std::map<std::string, std::string> values;
    for (const std::string& assignment : o.set) {
        const auto [key, value] = halves(assignment);
        const auto [said, is_new] = values.emplace(key, value);
        const auto number = parse_double(value), earlier = parse_double(said->second);
        if (is_new || said->second == value || (number && earlier && *number == *earlier)) continue;
        fail(ExitCode::kUsage, "{} is given twice, as {} and as {}: give only one of them",
             printable(key), printable(said->second), printable(value));
    }
}

bool is_config_name(std::string_view word) {
    return word.ends_with(".json") || word.ends_with(".hjson") || word.ends_with(".yaml") ||
           word.ends_with(".yml");
}

}  // namespace

launch::TargetKind target_kind_of(const RunOptions& options) {
    if (options.target.ends_with(".pt") || options.target.ends_with(".pt2"))
        return launch::TargetKind::kModel;
    const std::filesystem::path place =
        std::filesystem::path(options.working_directory) / options.target;
    std::error_code unreadable;
    if (std::filesystem::is_directory(place, unreadable) && storage::model_folder_of(place))
        return launch::TargetKind::kModel;
    if (options.no_python) return launch::TargetKind::kProgram;
    if (options.module || options.target.ends_with(".py")) return launch::TargetKind::kPython;
    return launch::TargetKind::kProgram;
}

// Checks and sets the options of `dslaunch verify`. A verification needs two steps, because a wrong
// update becomes visible only in the next gradients.
void settle_verify(RunOptions& options) {
    constexpr double kReferenceMaxS = 3600;
    if (target_kind_of(options) != launch::TargetKind::kModel)
        fail(ExitCode::kUsage, "verify needs a model, but {} is a script or a program",
             printable(options.target));
    if (!options.output.empty() || !options.resume.empty())
        fail(ExitCode::kUsage,
             "verify trains a few steps from the model's own weights and saves nothing: leave out "
             "--output and --resume");
    options.set.insert(options.set.begin(), "dslaunch.steps=2");
    if (!options.timeout_s) options.timeout_s = kReferenceMaxS;
}

void settle_run_options(RunOptions& options) {
    if (options.help || options.version) return;
    check_target(options);
    check_pairs(options);
    check_set(options);
    settle_device(options);
    if (!options.op_libraries.empty())
        options.set.push_back(config::op_libraries_override(options.op_libraries));
    if (options.verifies) settle_verify(options);
    if (options.new_data && options.resume.empty())
        fail(ExitCode::kUsage,
             "--new-data continues from a checkpoint with other data, so it needs --resume; for a "
             "new run, leave out --new-data");
    if (!options.verifies && !options.scratch.empty())
        fail(ExitCode::kUsage, "--scratch is only for `dslaunch verify`; leave it out");
}

namespace {

// Returns WORD or, if WORD is the --output folder of a job, the archive in it.
std::string target_of(const std::string& word, const RunOptions& options) {
    const auto archive =
        storage::archive_of_job((std::filesystem::path(options.working_directory) / word).string());
    if (!archive) return word;
    return (std::filesystem::path(word) / std::filesystem::path(*archive).filename()).string();
}

}  // namespace

RunOptions parse_run_options(std::span<const std::string> arguments, bool verify) {
    RunOptions options;
    options.verifies = verify;
    const std::vector<Option> rows = run_rows(options, [](const OptionRow&) { return true; });
    const auto rest = parse_options(rows, arguments, [&](const std::string& word) {
        const auto index = static_cast<size_t>(&word - arguments.data());
        refuse_switch_value(arguments, index);
        if (options.deepspeed && options.config.empty() && is_config_name(word)) {
            options.config = word;
            return false;
        }
        if (!options.target.empty()) {
            fail(ExitCode::kUsage, "unexpected `{}` after the model {}{}", printable(word),
                 printable(options.target), word_advice(options, arguments, index));
        }
        if (word.empty()) fail(ExitCode::kUsage, "the target is an empty string");
        options.target = target_of(word, options);
        return target_kind_of(options) != launch::TargetKind::kModel;
    });
    options.arguments.assign(rest.begin(), rest.end());
    settle_run_options(options);
    return options;
}

namespace {

// A server's ranks end by themselves within the grace time; the launcher waits this much longer.
constexpr double kServerEndS = 5;

// Returns the seconds of --grace in WORDS, or OTHERWISE if WORDS have no --grace or a bad number.
// The role itself refuses a bad number.
double grace_of(std::span<const std::string> words, double otherwise) {
    for (size_t i = 0; i < words.size(); ++i) {
        const size_t equals = words[i].find('=');
        if (with_dashes(words[i].substr(0, equals)) != "--grace") continue;
        const std::string value = equals != std::string::npos ? words[i].substr(equals + 1)
                                  : i + 1 < words.size()      ? words[i + 1]
                                                              : "";
        return parse_double(value).value_or(otherwise);
    }
    return otherwise;
}

// Returns the value of --device if WORDS[I] is this option. Sets I to the index of the option's
// last word.
std::optional<std::string> device_at(std::span<const std::string> words, size_t& i) {
    constexpr std::string_view kName = "--device";
    const std::string& word = words[i];
    if (word.starts_with("--device=")) return word.substr(kName.size() + 1);
    if (word != kName) return std::nullopt;
    return i + 1 < words.size() ? words[++i] : "";
}

}  // namespace

bool chooses_ranks(std::span<const std::string> words) {
    return std::ranges::any_of(
        words, [](const std::string& word) { return row_in(Group::kHosts, word) != nullptr; });
}

RunOptions parse_role_options(std::span<const std::string> words) {
    const std::string& role = words.front();
    if (words.size() < 2 || words[1].starts_with("-"))
        fail(ExitCode::kUsage,
             "{}: with options for hosts and ranks, the model must come first: dslaunch {} MODEL "
             "--hostfile FILE …",
             role, role);
    std::vector<std::string> launch, own;
    for (size_t i = 2; i < words.size(); ++i) {
        if (const auto device = device_at(words, i)) {
            if (*device != "cpu")
                fail(ExitCode::kUsage,
                     "{}: ranks that share a model run on CPUs only: leave out --device{}", role,
                     role == "generate" ? "; or leave out the options for hosts and ranks, since "
                                          "`dslaunch generate` can use a GPU in a single process"
                                        : "");
            continue;
        }
        const OptionRow* row = row_in(Group::kHosts, words[i]);
        std::vector<std::string>& into = row == nullptr ? own : launch;
        into.push_back(words[i]);
        const bool value_follows =
            row != nullptr && !row->value_name.empty() && words[i].find('=') == std::string::npos;
        if (value_follows && i + 1 < words.size()) launch.push_back(words[++i]);
    }
    std::error_code unreadable;
    const bool is_known =
        std::filesystem::exists(words[1], unreadable) || storage::is_hub_name(words[1]);
    launch.push_back(!is_known            ? words[1]
                     : role == "generate" ? storage::model_at(words[1])
                                          : storage::folder_model_at(words[1], role));
    RunOptions options = parse_run_options(launch);
    if (target_kind_of(options) != launch::TargetKind::kModel)
        fail(ExitCode::kUsage,
             "{}: {} is not a model; give a file that ends with .pt or .pt2, or a folder with a "
             "config.json",
             role, printable(words[1]));
    options.role = role;
    options.device = launch::DeviceRequest::kCpu;
    options.device_given = true;
    // A role that generates text has nothing to save, so it needs no grace time. A server needs it
    // to finish the texts that it is generating.
    options.grace_s = role == kServeRole ? grace_of(own, options.grace_s) + kServerEndS : 0;
    options.arguments = std::move(own);
    return options;
}

std::vector<std::string> run_examples() {
    return {"dslaunch data prepare chats.jsonl --model SmolLM2 -o rows.safetensors",
            "dslaunch SmolLM2 --data rows.safetensors --lora r=16,alpha=32 -o run",
            "dslaunch train.pt --data corpus.tokens --context 64 --steps 100 -o run1",
            "dslaunch --hostfile hostfile train.pt --deepspeed_config ds_config.json",
            "dslaunch --hostfile hostfile --include node1@node2:0,2 train.py --epochs 3",
            "dslaunch --hostfile hostfile --dry-run train.pt"};
}

HelpPage run_page(bool verify, bool all) {
    HelpPage page{.does =
                      "Trains a model, or runs a script or program, with one worker on every slot "
                      "of the hosts, or on this machine.\nTARGET is a Hugging Face folder, another "
                      "model (train.pt2, train.pt), a Python script (python3 -u TARGET "
                      "--local_rank=N) or any program. Options come before TARGET; with a model "
                      "they may also come after it. In option names `-` and `_` mean the same; "
                      "write a value as --name VALUE or --name=VALUE.",
                  .examples = run_examples(),
                  .exit_codes =
                      "for a model 64 to 76, depending on the cause (docs/help/exit-codes.md); for "
                      "a script or program the code of the first failing rank, 128+n for signal n.",
                  .docs = "docs/reference/cli.md, docs/start/from-deepspeed.md",
                  .usage = {"dslaunch [run] [options] TARGET [arguments]"}};
    if (verify) {
        page.does =
            "Trains a few steps (--steps, default 2) with the hosts, ranks and config of a job, "
            "and compares each step with a reference: a single process that computes the whole "
            "model. It compares the loss, all gradients, clipping, all updates and buffers. The "
            "exit code is 0 if all are equal within rounding; otherwise it is 74, and the first "
            "parameter, rank and instruction that differ are printed. Accepts the options of run; "
            "writes nothing.";
        page.examples = {"dslaunch verify train.pt --config ds_config.json",
                         "dslaunch verify --hostfile hostfile Qwen2.5-0.5B --data corpus.tokens"};
        page.exit_codes = "64 to 76, depending on the cause (docs/help/exit-codes.md).";
        page.docs = "docs/guide/verify.md";
        page.usage = {"dslaunch verify [options] MODEL"};
    }
    RunOptions unused;
    std::vector<Option> options = run_rows(unused, [&](const OptionRow& row) {
        const bool is_of_others = row.group == Group::kTorchrun || row.group == Group::kRefused ||
                                  row.help.starts_with("accepted");
        return (all || !is_of_others) && (verify || row.names != "scratch");
    });
    page.groups = option_groups(options);
    return page;
}

}  // namespace dslaunch::launcher
