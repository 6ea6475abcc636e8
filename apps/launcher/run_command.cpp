// `dslaunch [run] [options] TARGET [arguments]` and `dslaunch verify`: everything from the command
// line to the job's exit code.
#include "launcher/run/commands.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/path.h"
#include "base/screen.h"
#include "base/text.h"
#include "base/text/file_faults.h"
#include "base/text/words.h"
#include "launch/agent/agent_command.h"
#include "launch/files/file_writer.h"
#include "launch/machine/held_name.h"
#include "launch/machine/torch_place.h"
#include "launch/plan/join_token.h"
#include "launch/process/standard_streams.h"
#include "launch/supervise/job.h"
#include "launcher/jobs/known_jobs.h"
#include "launcher/jobs/next_command.h"
#include "launcher/jobs/ran_elsewhere.h"
#include "launcher/links/other_tools.h"
#include "launcher/options/option_table.h"
#include "launcher/options/parse_run.h"
#include "launcher/options/run_options.h"
#include "launcher/report/loss_picture.h"
#include "launcher/run/build_job.h"
#include "launcher/run/dry_run.h"
#include "launcher/run/foreign_ranks.h"
#include "launcher/run/host_source.h"
#include "launcher/run/job_monitors.h"
#include "launcher/run/mpi_copies.h"
#include "launcher/run/own_output.h"
#include "launcher/run/training_job_checks.h"
#include "launcher/tune/tune_command.h"
#include "storage/files/file_kind.h"
#include "storage/files/input_file.h"
#include "storage/files/mapped_file.h"
#include "storage/huggingface/named_place.h"
#include "storage/named/place.h"

namespace dslaunch::launcher {
namespace {

bool is_in_path(const std::string& program) {
    const char* path = std::getenv("PATH");
    for (const std::string& folder : split(path == nullptr ? "" : path, ':')) {
        if (access((folder + "/" + program).c_str(), X_OK) == 0) return true;
    }
    return false;
}

// Returns the largest number of wrong letters that still counts as a typing error. Short words
// resemble many others: `sh` must not be taken for a subcommand.
size_t mistyped_letters_max(std::string_view word) {
    return word.size() < 5 ? 1 : 2;
}

struct MeantSubcommand {
    std::string name;
    size_t distance = 0;  // wrong letters in the typed word
};

// Returns the subcommand whose name WORD resembles. If OTHERS is true, also compares WORD with
// other words that people use for subcommands, for example `jobs` for `ps`. Returns nullopt if
// there is none.
std::optional<MeantSubcommand> meant_subcommand(const std::string& word,
                                                std::span<const std::string> subcommands,
                                                bool others) {
    static const std::map<std::string, std::string> kOtherWords = {{"checkpoint", "ckpt"},
                                                                   {"checkpoints", "ckpt"},
                                                                   {"help", "--help"},
                                                                   {"version", "--version"},
                                                                   {"jobs", "ps"},
                                                                   {"kill", "stop"},
                                                                   {"cancel", "stop"},
                                                                   {"status", "ps"},
                                                                   {"train", "run"},
                                                                   {"launch", "run"},
                                                                   {"tokenize", "tokens"},
                                                                   {"benchmark", "io-bench"},
                                                                   {"finetune", "run"},
                                                                   {"fine-tune", "run"},
                                                                   {"sft", "run"},
                                                                   {"chat", "generate"},
                                                                   {"inference", "generate"},
                                                                   {"evaluate", "eval"},
                                                                   {"validate", "verify"},
                                                                   {"export", "ckpt"},
                                                                   {"merge", "model"},
                                                                   {"convert", "model"},
                                                                   {"autotune", "tune"},
                                                                   {"autotuning", "tune"},
                                                                   {"monitor", "top"},
                                                                   {"list", "ps"},
                                                                   {"doctor", "report"},
                                                                   {"manual", "man"},
                                                                   {"preprocess", "data"},
                                                                   {"estimate", "plan"},
                                                                   {"schema", "config"},
                                                                   {"show", "model"},
                                                                   {"inspect", "model"},
                                                                   {"quantize", "compress"},
                                                                   {"attach", "logs"},
                                                                   {"prepare", "data"}};
    std::vector<std::string> words(subcommands.begin(), subcommands.end());
    if (others)
        for (const auto& [other, name] : kOtherWords) words.push_back(other);
    const auto near = nearest(word, words);
    if (!near) return std::nullopt;
    const auto other = kOtherWords.find(*near);
    return MeantSubcommand{other == kOtherWords.end() ? *near : other->second,
                           edit_distance(word, *near)};
}

// Refuses TARGET if it is a command of another program whose work dslaunch does: a program that is
// not installed, or one that would start a job's ranks once for each rank.
void refuse_other_tool(const launch::JobSpec& spec, const RunOptions& options, bool run_is_named) {
    const bool is_here =
        spec.transport == launch::TransportKind::kLocal && spec.environment.set.empty();
    const bool launches = !run_is_named && is_other_launcher(spec.target, options.arguments);
    if (!launches && (!is_here || is_in_path(spec.target))) return;
    const std::string advice = other_tool_advice(spec.target, options.arguments);
    if (!advice.empty())
        fail(ExitCode::kUsage, "`{}` is not a subcommand: {}", printable(spec.target), advice);
}

// Returns the first of WORDS, quoted for a shell.
std::string command_text(std::span<const std::string> words) {
    constexpr size_t kWordsMax = 12;
    std::string text;
    for (const std::string& word : words.first(std::min(words.size(), kWordsMax)))
        text += (text.empty() ? "" : " ") + shell_word(word);
    return printable(text) + (words.size() > kWordsMax ? " ..." : "");
}

std::string path_of_target(const launch::JobSpec& spec) {
    return (std::filesystem::path(spec.working_directory) / spec.target)
        .lexically_normal()
        .string();
}

// Returns true if an option names training data.
bool has_data(const RunOptions& options) {
    // Words after a target that is no model are a program's arguments.
    return std::ranges::count(options.arguments, "--data") > 0 ||
           std::ranges::any_of(options.set, [](const std::string& one) {
               return one.starts_with("dslaunch.data.train=");
           });
}

// Refuses a name with blanks that was not quoted, so that its parts are several words: `my model`.
void refuse_split_name(const launch::JobSpec& spec, const RunOptions& options) {
    if (spec.target_kind != launch::TargetKind::kProgram ||
        spec.transport != launch::TransportKind::kLocal || is_in_path(spec.target) ||
        access(path_of_target(spec).c_str(), F_OK) == 0)
        return;
    const std::string name = split_name(spec.target, options.arguments, spec.working_directory);
    if (name.empty()) return;
    const auto parts = std::ranges::count(name, ' ') - std::ranges::count(spec.target, ' ');
    std::vector<std::string> words = {name};
    words.insert(words.end(), options.arguments.begin() + parts, options.arguments.end());
    fail(ExitCode::kUsage, "a name with a blank needs quotes: dslaunch {}", command_text(words));
}

// Refuses a program whose name resembles the name of a subcommand, unless the user has written
// `run`. For example, `dslaunch ls` does not mean /usr/bin/ls on every host. If there is no such
// program, also refuses less similar names, as in `dslaunch gnrtae m.pt`.
void refuse_mistyped_subcommand(const launch::JobSpec& spec, const RunOptions& options,
                                bool run_is_named, std::span<const std::string> subcommands) {
    const std::string& target = spec.target;
    if (spec.target_kind != launch::TargetKind::kProgram || target.find('/') != target.npos ||
        access(target.c_str(), F_OK) == 0) {
        return;
    }
    const bool here =
        spec.transport == launch::TransportKind::kLocal && spec.environment.set.empty();
    const std::string next = options.arguments.empty() ? "" : options.arguments.front();
    if (here && !is_in_path(target)) {
        refuse_moved_output(path_from_here(path_of_target(spec)));
        storage::refuse_download(target, next);
    }
    refuse_other_tool(spec, options, run_is_named);
    if (here && !is_in_path(target) && trim(target) != target)
        fail(ExitCode::kInput, "{}: no such file or folder{}", shell_word(target),
             near_file_text(path_of_target(spec)));
    // Compares the target with the names of subcommands. If the target is not a program, or if it
    // is `kill`, also compares it with synonyms of subcommands. On other hosts, `kill` as a program
    // would end unrelated processes with the same numbers.
    const auto guess =
        meant_subcommand(target, subcommands, /*others=*/target == "kill" || !is_in_path(target));
    const bool is_word = (guess && guess->distance == 0) || access(next.c_str(), F_OK) == 0;
    if (here && !is_in_path(target) && !is_word && std::ranges::count(subcommands, next) > 0) {
        std::vector<std::string> words = options.arguments;
        words.insert(words.begin() + 1, target);
        fail(ExitCode::kUsage,
             "no program `{}` is in PATH; the subcommand must come first: dslaunch {}",
             printable(target), command_text(words));
    }
    if (here && !is_in_path(target) && next == "--help" &&
        find_option_row("--" + target) != nullptr)
        fail(ExitCode::kUsage, "--{0} is an option of `run`: `dslaunch run --help` lists it",
             printable(target));
    if (!guess) return;
    // A target with data can only be a model.
    if (here && !is_in_path(target) && has_data(options) && next.starts_with('-'))
        fail(ExitCode::kInput, "{}: there is no such model in this folder ({}){}",
             printable(target), printable(spec.working_directory),
             near_file_text(path_of_target(spec)));
    if (here && !is_in_path(target) && guess->name == "run" && target != "run") {
        fail(ExitCode::kUsage,
             "no program `{0}` is in PATH; to train or to start a program, leave `{0}` out: "
             "dslaunch {1}",
             printable(target),
             options.arguments.empty() ? "MODEL --data FILE" : command_text(options.arguments));
    }
    if (here && !is_in_path(target)) {
        fail(ExitCode::kUsage,
             "no program `{}` is in PATH; did you mean the subcommand `{}`? A program that is not "
             "in PATH needs its path: {}",
             printable(target), guess->name, shell_word("./" + target));
    }
    if (run_is_named || guess->distance > mistyped_letters_max(target)) return;
    fail(ExitCode::kUsage,
         "`{0}` is not a subcommand; did you mean `{1}`? To start the program `{0}` on every host, "
         "give its path or use `dslaunch run {2}`",
         printable(target), guess->name, shell_word(target));
}

// Refuses a missing script; otherwise Python would report it once for each rank.
void require_script(const RunOptions& options, const launch::JobSpec& spec) {
    if (spec.target_kind != launch::TargetKind::kPython || options.module ||
        spec.transport != launch::TransportKind::kLocal) {
        return;
    }
    const std::string path = path_of_target(spec);
    if (access(path.c_str(), F_OK) == 0) return;
    if (const std::string advice = other_tool_advice(spec.target, options.arguments);
        !advice.empty())
        fail(ExitCode::kUsage, "{}: this script does not exist; with dslaunch, {}",
             printable(spec.target), advice);
    fail(ExitCode::kInput,
         "{}: this script does not exist; correct the path, or name the folder of the script with "
         "--chdir",
         printable(path));
}

// Refuses a TARGET that is a folder, but not a Hugging Face model.
void refuse_folder(const launch::JobSpec& spec) {
    const bool is_named = spec.target.find('/') != std::string::npos || !is_in_path(spec.target);
    std::error_code unreadable;
    if (spec.target_kind != launch::TargetKind::kProgram || !is_named ||
        !std::filesystem::is_directory(path_of_target(spec), unreadable)) {
        return;
    }
    const std::string path = path_from_here(path_of_target(spec));
    static_cast<void>(storage::model_at(path));  // throws, saying what the folder contains
}

void require_output_folder(const launch::JobSpec& spec) {
    std::error_code unreadable;
    const std::filesystem::path path = spec.output_directory;
    if (path.empty() || !std::filesystem::exists(path, unreadable) ||
        std::filesystem::is_directory(path, unreadable)) {
        return;
    }
    fail(ExitCode::kDisk, "--output {}: is a file, but must be a folder; name another path",
         printable(spec.output_directory));
}

// Refuses a Slurm allocation without srun: Slurm's variables may be left in a shell after the
// allocation has ended.
void require_srun(const launch::JobSpec& spec) {
    if (spec.transport != launch::TransportKind::kSlurm || is_in_path("srun")) return;
    fail(ExitCode::kSetup,
         "SLURM_JOB_ID is set, so this is a Slurm allocation, but srun is not in PATH: add srun to "
         "PATH, or unset SLURM_JOB_ID, or give --hostfile or --standalone");
}

// Refuses a file that is not a program, for example a text or weights. For a text, returns 126,
// which shells return for a file that may not be executed. Returns 0 if the file may be a program.
int refuse_data_as_program(const launch::JobSpec& spec) {
    constexpr int kNotExecutable = 126;
    const std::string path = path_from_here(path_of_target(spec));
    std::error_code unreadable;
    if (spec.target_kind != launch::TargetKind::kProgram ||
        spec.transport != launch::TransportKind::kLocal ||
        (spec.target.find('/') == spec.target.npos && is_in_path(spec.target)) ||
        !std::filesystem::is_regular_file(path, unreadable) || access(path.c_str(), X_OK) == 0)
        return 0;
    storage::refuse_part(path);
    try {
        storage::require_target(path);
    } catch (const Error& error) {
        if (storage::file_kind(storage::MappedFile(path).bytes()) != storage::FileKind::kText)
            throw;
        print_message(fmt::format("dslaunch: error: {}", printable_lines(error.what(), 0)));
        return kNotExecutable;
    }
    return 0;
}

// Returns 127, as a shell does, and prints the reason if no program with the target's name can be
// started on this machine. Returns 0 if the program exists, or if other machines may have it.
// Throws Error{kInput} if the target can only be a model: the name of a model on a hub, a URL, a
// broken link or, if TRAINS is true, any missing file.
int find_program(const launch::JobSpec& spec, bool trains) {
    constexpr int kNotFound = 127;
    if (spec.target_kind != launch::TargetKind::kProgram) return 0;
    if (storage::is_hub_name(spec.target, spec.working_directory) ||
        spec.target.find("://") != std::string::npos)
        storage::fail_missing_model(spec.target);
    if (spec.transport != launch::TransportKind::kLocal || !spec.environment.set.empty()) return 0;
    const std::string& target = spec.target;
    const bool is_path = target.find('/') != target.npos;
    if (is_path ? access(path_of_target(spec).c_str(), F_OK) == 0 : is_in_path(target)) return 0;
    std::error_code unreadable;
    if (trains || std::filesystem::is_symlink(path_of_target(spec), unreadable)) {
        refuse_moved_output(path_of_target(spec));
        storage::fail_missing_model(path_from_here(path_of_target(spec)));
    }
    if (is_path) {
        print_message(fmt::format("dslaunch: error: {}: this program does not exist{}",
                                  printable(target), near_file_text(path_of_target(spec))));
    } else {
        const std::string near = near_file_text(path_of_target(spec));
        const std::string download_text = fmt::format(
            "; models are not downloaded: hf download ORG/{0} --local-dir {0}", printable(target));
        print_message(
            fmt::format("dslaunch: error: `{0}` is neither a subcommand nor a program in PATH: "
                        "give a program in this folder as ./{0}, a model as a file (train.pt) or a "
                        "Hugging Face folder; `dslaunch --help` lists the subcommands{1}",
                        printable(target), near.empty() ? download_text : near));
    }
    return kNotFound;
}

// Refuses a model file that has another ending than .pt or .pt2 and would be started as a program.
void refuse_model_as_program(const launch::JobSpec& spec) {
    const std::string path = path_from_here(path_of_target(spec));
    if (spec.target_kind != launch::TargetKind::kProgram || !storage::has_model_name(spec.target) ||
        access(path.c_str(), R_OK) != 0 || access(path.c_str(), X_OK) == 0) {
        return;
    }
    storage::refuse_part(path);
    storage::require_model(path);
    fail(ExitCode::kUsage, "{}: a model's file name must end with .pt or .pt2; rename it: mv {} {}",
         printable(path), shell_word(spec.target),
         shell_word(std::filesystem::path(spec.target).replace_extension(".pt").string()));
}

// Gives the token to a job whose agents connect by themselves. The launcher recognizes these agents
// by the token.
void give_token(const RunOptions& options, const std::string& variable, launch::JobSpec& spec) {
    if (spec.transport != launch::TransportKind::kJoin) return;
    spec.token = launch::choose_token(variable, options.token_file);
    if (spec.token.empty()) {
        fail(ExitCode::kUsage,
             "agents that join over a network must prove who they are with a token; {}",
             launch::kTokenAdvice);
    }
}

// Runs the agent of a further node of a `--no_ssh` job, which node 0 launches.
int join_by_hand(const RunOptions& options, const std::string& variable,
                 launch::JoinRequest request) {
    launch::release_end_signals();
    request.token = launch::choose_token(variable, options.token_file);
    return launch::run_joining_agent(std::move(request));
}

}  // namespace

namespace {

struct JobRequest {
    RunOptions options;
    std::span<const std::string> words;  // the command line's words, for messages
    bool run_is_named = false;
    std::span<const std::string> subcommands;  // empty: mistyped names are not looked for
    launch::MetricsTap metrics = {};  // not empty: the job is a trial, which is not recorded
};

// Refuses a target that cannot be run. Returns the exit code, or 0 if the target is good.
int refuse_target(const launch::JobSpec& spec, const JobRequest& request) {
    const RunOptions& options = request.options;
    refuse_split_name(spec, options);
    refuse_mistyped_subcommand(spec, options, request.run_is_named || options.no_python,
                               request.subcommands);
    refuse_folder(spec);
    refuse_model_as_program(spec);
    if (const int code = refuse_data_as_program(spec); code != 0) return code;
    if (const int code = find_program(spec, has_data(options)); code != 0) return code;
    require_script(options, spec);
    require_output_folder(spec);
    require_srun(spec);
    if (spec.target_kind == launch::TargetKind::kModel) {
        const std::string& worker = spec.required_files.front();
        require_worker(worker);
        launch::EnvironmentList environment = launch::own_environment();
        if (spec.transport == launch::TransportKind::kLocal)
            launch::lead_to_torch(worker, environment);
    }
    return 0;
}

void tell_next(const RunOptions& options, const launch::JobSpec& spec) {
    if (options.log.quiet || options.verifies || !options.role.empty()) return;
    if (const std::string command = use_command(spec, options); !command.empty())
        launch::write_last_words(fitted("dslaunch: next: " + command, 2) + "\n");
}

// Draws the loss of the run in FOLDER. Waits at most kDrawMax for this: the disk may not answer,
// and a user who has interrupted the run should not wait long.
void draw_loss(const std::string& folder) {
    constexpr std::chrono::seconds kDrawMax{5};
    try {
        launch::FileWriter writer("loss.svg");
        const auto draw = [folder] {
            write_loss_picture(folder);
            return 0;
        };
        static_cast<void>(writer.post(draw, 0));
        if (!writer.wait(kDrawMax))
            log_warn("launch", "{}: no picture of the loss: the disk does not answer",
                     printable(path_from_here(folder)));
    } catch (const Error& error) {  // the job's exit code counts
        log_warn("launch", "no picture of the loss: {}", error.what());
    }
}

// Warns if a run of SPEC would be refused because of its config. Used by --dry-run.
void warn_of_config(const RunOptions& options, const launch::JobSpec& spec) {
    std::error_code missing;
    if (spec.target_kind != launch::TargetKind::kModel || !options.role.empty() ||
        !std::filesystem::exists(path_of_target(spec), missing))
        return;
    try {
        static_cast<void>(config_of_job(options, spec));
    } catch (const Error& error) {
        print_message(fmt::format("dslaunch: warning: a run would be refused: {}", error.what()));
    }
}

// Checks the job and runs it to its end. Reports the exit code to OUTPUT.
int check_and_run(BuiltJob job, const JobRequest& request, const Machine& machine,
                  OwnOutput& output) {
    const RunOptions& options = request.options;
    TrainingFacts facts;
    const bool is_model = job.spec.target_kind == launch::TargetKind::kModel;
    if (is_model && options.role.empty()) {
        refuse_running_output(job.spec);
        facts = look_into_training_job(options, job.spec);
        if (facts.finished_step > 0) {
            print_message(fmt::format(
                "dslaunch: {}: is already at step {}, its last, so there is nothing to do; give a "
                "larger --steps N to continue",
                printable(path_from_here(job.spec.output_directory)), facts.finished_step));
            return 0;
        }
        job.spec.resume_command = resume_command(request.words, options, output.is_made());
        if (options.no_output) job.notes.emplace_back("--no-output: no results are kept");
        if (request.metrics) {
            job.spec.monitors = {};  // monitors do not show trials
        } else {
            for (std::string& line :
                 describe_monitors(facts.monitors, job.spec.monitors, machine.binary_directory))
                job.notes.push_back(std::move(line));
        }
    } else if (is_model) {
        require_role_files(options, job.spec);
    }
    print_notes(job, options);  // printed after all checks of the command line
    if (options.push && job.spec.transport != launch::TransportKind::kLocal) push_for_job(job.spec);
    const launch::HeldName held =
        job.spec.held_name.empty() ? launch::HeldName() : launch::HeldName(job.spec.held_name);
    const int code = launch::run_job(job.spec, {}, request.metrics);
    output.end(code);
    const bool has_disk = code != static_cast<int>(ExitCode::kDisk);
    if (has_disk && is_model && options.role.empty() && !job.spec.output_directory.empty())
        draw_loss(job.spec.output_directory);
    if (code == 0) tell_next(options, job.spec);
    return code;
}

int start_job(JobRequest request) {
    RunOptions& options = request.options;
    const std::string token = launch::take_token_variable();  // workers must not inherit it
    set_log_level(options.log.quiet ? LogLevel::kWarn : parse_log_level(options.log.level));
    Machine machine = Machine::this_one();
    std::optional<MpiCopies> copies;
    if (MpiCopies::is_one(options, machine)) {
        MpiCopies::check(options);
        copies.emplace(machine);
        if (!copies->launches()) {
            launch::release_end_signals();
            return copies->serve();
        }
        machine = Machine::this_one();
        machine.joining = copies->joining();
    }
    settle_meeting(options, machine);
    const auto slurm_copy = SlurmCopy::find(options, machine);
    if (slurm_copy && !slurm_copy->launches()) return slurm_copy->wait(options);
    if (auto joining = agent_by_hand(options); joining && !options.dry_run) {
        return join_by_hand(options, token, *std::move(joining));
    }
    // After this point, this process is the job's only launcher.
    const std::string foreign = options.dry_run ? "" : foreign_ranks_note(machine);
    // Looked for before anything is made here.
    const std::string there = options.resume.empty() ? "" : ran_elsewhere_text(request.words);
    OwnOutput output(options, machine.directory);
    BuiltJob job = build_job(options, machine);
    output.set_job(job.spec.job_id);
    if (!foreign.empty()) job.notes.push_back(foreign);
    if (!there.empty()) job.notes.push_back("the run is not in this folder" + there);
    if (slurm_copy) job.spec.held_name = slurm_copy->held_name();
    if (request.metrics) job.spec.state_directory.clear();
    if (options.dry_run) {
        print_notes(job, options);
        warn_of_crowd(job.spec);
        const auto places = places_here(job.spec);
        fmt::print("{}",
                   options.json ? dry_run_json(job.spec, places) : dry_run_text(job.spec, places));
        warn_of_config(options, job.spec);
        return 0;
    }
    if (copies) {
        job.spec.token = copies->token();
    } else {
        give_token(options, token, job.spec);
    }
    if (const int code = refuse_target(job.spec, request); code != 0) return code;
    const std::string state = job.spec.state_directory;
    const int code = check_and_run(std::move(job), request, machine, output);
    if (copies && code == 0) copies->finish();
    remove_old_jobs(state);
    return code;
}

}  // namespace

int run_command(std::span<const std::string> arguments, RunAs as,
                std::span<const std::string> subcommands) {
    launch::hold_end_signals();
    const bool verifies = as == RunAs::kVerify;
    RunOptions options = parse_run_options(arguments, verifies);
    if (options.help) {
        print_help(run_page(verifies, options.help_all));
        return 0;
    }
    if (options.version) {
        fmt::print("dslaunch {}\n", DSL_VERSION);
        return 0;
    }
    if (!options.autotuning.empty()) {
        const TuneOutcome tuned = autotune(options);
        if (tuned.code != 0 || options.autotuning == "tune") return tuned.code;
        launch::hold_end_signals();
        options.set.insert(options.set.end(), tuned.set.begin(), tuned.set.end());
    }
    return start_job({options, arguments, as != RunAs::kUnnamed, subcommands});
}

int run_trial(const RunOptions& options, std::function<void(std::string_view line)> metrics) {
    launch::hold_end_signals();
    return start_job({options, {}, true, {}, std::move(metrics)});
}

int run_role(std::span<const std::string> words) {
    launch::hold_end_signals();
    return start_job({parse_role_options(words), words, true, {}});
}

}  // namespace dslaunch::launcher
