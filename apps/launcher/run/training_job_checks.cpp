#include "launcher/run/training_job_checks.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "base/text.h"
#include "base/text/file_faults.h"
#include "base/text/words.h"
#include "config/read/unread_config.h"
#include "config/resolve/begun_run.h"
#include "config/resolve/option_overrides.h"
#include "config/resolve/resolve.h"
#include "launch/machine/gpu_use.h"
#include "launch/output/run_record.h"
#include "launch/supervise/restart_rules.h"
#include "launcher/options/machine.h"
#include "launcher/run/job_monitors.h"
#include "storage/adapter/adapter_config.h"
#include "storage/checkpoint/checkpoint_store.h"
#include "storage/checkpoint/manifest.h"
#include "storage/export/weight_export.h"
#include "storage/files/input_file.h"
#include "storage/files/zip_archive.h"
#include "storage/huggingface/model_folder.h"
#include "storage/huggingface/named_place.h"
#include "storage/named/place.h"

namespace dslaunch::launcher {
namespace {

constexpr const char* kConfigName = "ds_config.json";

bool exists(const std::string& path) {
    return access(path.c_str(), F_OK) == 0;
}

// The config, its file, and the folder from which its relative paths start. The file is empty if
// the config is packed in the archive, or if there is none. The worker finds the config by the same
// rules.
struct FoundConfig {
    config::TrainConfig config;
    std::string path;
    std::string folder;
};

FoundConfig find_config(const RunOptions& options, const std::string& model,
                        const std::string& directory) {
    const auto load = [](const std::string& path) {
        return FoundConfig{config::load_config(path), path, folder_of(path)};
    };
    const std::optional<std::string> folder = storage::model_folder_of(model);
    std::optional<storage::ZipArchive> archive;
    if (!folder) archive.emplace(model);
    if (!options.config.empty()) {
        const std::string path = resolved_path(options.config, directory);
        const std::string near = near_file_text(path);
        if (!exists(path) && near.empty())
            fail(ExitCode::kConfig,
                 "config {}: this file does not exist; give another one, or leave it out: training "
                 "also works with options and defaults alone (`dslaunch config keys` lists the "
                 "keys of a config)",
                 printable(path));
        if (std::filesystem::is_fifo(path))
            fail(ExitCode::kConfig,
                 "config {}: is a pipe, but every rank reads the config: write it to a file",
                 printable(options.config));
        return load(path);
    }
    if (const auto text = archive ? archive->extra(kConfigName) : std::nullopt) {
        const std::string name = options.target + ":" + kConfigName;
        const std::string unread =
            config::unread_config_text(*text, name, resolved_path(kConfigName, folder_of(model)));
        if (!unread.empty()) log_warn("config", "{}", unread);
        return {config::parse_config(*text, name), "", folder_of(model)};
    }
    const std::string beside = resolved_path(kConfigName, folder.value_or(folder_of(model)));
    if (exists(beside)) return load(beside);
    return {config::empty_config(), "", directory};
}

struct DataOption {
    const char* option;
    const char* key;
};
constexpr DataOption kTrain = {"--data", "dslaunch.data.train"};
constexpr DataOption kEval = {"--eval-data", "dslaunch.data.eval"};

std::string find_data(const std::string& path, const DataOption& named_by, const FoundConfig& found,
                      const launch::JobSpec& spec) {
    if (path.find("://") != std::string::npos)
        fail(ExitCode::kInput,
             "{} {}: is a URL, but data can only be read from files on this machine; download it, "
             "and give the file's name{}",
             named_by.option, printable(path), storage::hub_data_text(path));
    const std::string beside = resolved_path(path, found.folder);
    if (exists(beside)) return beside;
    const std::string here = resolved_path(path, spec.working_directory);
    if (access(here.c_str(), R_OK) == 0) return here;
    const int error_number = errno;
    if (path.find(',') != std::string::npos)
        fail(ExitCode::kInput,
             "{} {}: must be a single file; `dslaunch data prepare` makes one file from several "
             "files of texts or chats",
             named_by.option, printable(path));
    if (const std::string hub = storage::hub_data_text(path, spec.working_directory); !hub.empty())
        fail(ExitCode::kInput, "{} {}: no such file{}", named_by.option, printable(path), hub);
    const bool one_place = beside == here;
    const std::string near = near_file_text(here);
    fail(ExitCode::kInput, "data file {}: {}{}{}", here, errno_text(error_number),
         one_place ? "" : fmt::format(" (and {} does not exist either)", beside),
         near.empty()
             ? fmt::format("; give its path with {} FILE or {}", named_by.option, named_by.key)
             : near);
}

// Requires the data file PATH on every host, unless PATH is empty. Refuses a file that cannot be
// data.
void require_data(const std::string& path, const DataOption& named_by, const FoundConfig& found,
                  launch::JobSpec& spec) {
    if (path.empty()) return;
    const std::string file = find_data(path, named_by, found, spec);
    if (exists(file + "/checkpoints") || exists(file + "/run.json"))
        fail(ExitCode::kInput,
             "{0} {1}: is the --output folder of a run, not data: give one file (.safetensors, "
             ".tokens, .npy); to continue that run: --output {1} --resume",
             named_by.option, shell_word(path));
    const std::string model = resolved_path(spec.target, spec.working_directory);
    storage::require_data(file, storage::model_folder_of(model) ? spec.target : "");
    spec.required_files.push_back(file);
}

// Requires the file of prompts at PATH on every host. Errors describe the form of such a file,
// since users easily give a text to this option.
void require_prompts(const std::string& path, const FoundConfig& found, launch::JobSpec& spec) {
    if (path.empty()) return;
    const std::string beside = resolved_path(path, found.folder);
    const std::string file = exists(beside) ? beside : resolved_path(path, spec.working_directory);
    std::error_code unreadable;
    if (std::filesystem::is_regular_file(file, unreadable) && access(file.c_str(), R_OK) == 0) {
        spec.required_files.push_back(file);
        return;
    }
    const std::string near = near_file_text(file);
    const std::string cause = std::filesystem::is_directory(file, unreadable) ? "is a folder"
                              : exists(file) ? std::string("cannot be read")
                                             : std::string("there is no such file");
    fail(ExitCode::kInput,
         "--sample-prompts {0} (dslaunch.samples.file): {1}{2}; give a file with one prompt in "
         "each line, such as {{\"prompt\": \"In the beginning\"}}, or a text itself: --set "
         "'dslaunch.samples.prompts=[\"In the beginning\"]'",
         printable(path), cause, near);
}

// Requires the library of operators at PATH on every host.
void require_library(const std::string& path, const FoundConfig& found, launch::JobSpec& spec) {
    const std::string beside = resolved_path(path, found.folder);
    const std::string file = exists(beside) ? beside : resolved_path(path, spec.working_directory);
    if (access(file.c_str(), R_OK) != 0)
        fail(ExitCode::kInput, "--op-library {}: {}{}", printable(file), errno_text(errno),
             near_file_text(file));
    spec.required_files.push_back(file);
}

// Requires on every host the adapter from which training starts.
void require_adapter(const std::string& path, const FoundConfig& found, launch::JobSpec& spec) {
    const std::string beside = resolved_path(path, found.folder);
    const std::string folder =
        exists(beside) ? beside : resolved_path(path, spec.working_directory);
    for (const char* name : {storage::kAdapterConfig, storage::kAdapterWeights}) {
        const std::string file = fmt::format("{}/{}", folder, name);
        if (access(file.c_str(), R_OK) != 0)
            fail(ExitCode::kInput, "dslaunch.lora.init: {}: {}{}", printable(file),
                 errno_text(errno), near_file_text(file));
        spec.required_files.push_back(file);
    }
}

// Sets the device that the config chooses, if there is no --device. Throws if the config wants a
// GPU and this machine has none.
void settle_device(config::DeviceChoice choice, launch::JobSpec& spec) {
    if (choice == config::DeviceChoice::kCuda && spec.device == launch::DeviceRequest::kCpu) {
        fail(ExitCode::kSetup,
             "dslaunch.device: cuda: found no GPU on this machine (looked for {}); run on a "
             "machine with a GPU, or use --device cpu",
             launch::kGpuDevicePattern);
    }
    if (spec.device != launch::DeviceRequest::kAuto) return;
    if (choice == config::DeviceChoice::kCpu) spec.device = launch::DeviceRequest::kCpu;
    if (choice == config::DeviceChoice::kCuda) spec.device = launch::DeviceRequest::kCuda;
}

// Checks the target. A folder is read file by file, so every host must have its files. An archive
// is already among the required files.
void require_target(const RunOptions& options, const std::string& model, launch::JobSpec& spec) {
    if (!exists(model)) storage::fail_missing_model(model);
    if (!storage::model_folder_of(model)) return storage::require_model(model);
    if (!options.expect_sha256.empty())
        fail(ExitCode::kUsage,
             "--expect-sha256 is for an archive, which contains code; {} is a folder of weights "
             "without code",
             printable(options.target));
    const storage::ModelFolder folder = storage::open_model_folder(model);
    storage::require_weights(folder);
    std::erase(spec.required_files, model);
    for (const std::string& file : folder.files()) spec.required_files.push_back(file);
}

}  // namespace

void require_role_files(const RunOptions& options, launch::JobSpec& spec) {
    const std::string model = resolved_path(options.target, spec.working_directory);
    require_target(options, model, spec);
    const std::optional<std::string> folder = storage::model_folder_of(model);
    if (!folder) return;
    for (const std::string& name : storage::config_files_of(*folder))
        if (name != "config.json") spec.required_files.push_back(resolved_path(name, *folder));
}

namespace {

// Returns a run's config from its newest whole checkpoint, or else from run.json. PATH is a
// checkpoint, a folder of checkpoints, or the output of a run. Returns an empty text if this
// machine can read no config.
std::string config_of_run(const std::string& path) {
    const auto tree = storage::make_disk_tree();
    std::vector<std::string> manifests = {path + "/manifest.json"};
    for (const std::string& root : {path + "/checkpoints", path}) {
        if (!tree->list(root)) continue;
        for (const auto& found : storage::CheckpointStore(*tree, root, 0).list())
            if (found.is_complete) manifests.push_back(found.folder + "/manifest.json");
    }
    for (const std::string& manifest : manifests) {
        if (!exists(manifest)) continue;
        const std::string text = read_file(manifest, size_t{1} << 30);
        return storage::parse_manifest(manifest, text).config_json;
    }
    const std::string run = path + "/run.json";
    return exists(run) ? read_file(run, config::kConfigBytesMax) : "";
}

}  // namespace

std::vector<std::string> begun_of(const RunOptions& options, const std::string& output) {
    const bool is_own = options.resume == "auto" || options.resume == "best";
    const std::string path = is_own ? output : options.resume;
    std::vector<std::string> begun;
    try {
        if (!path.empty()) begun = config::begun_values(config_of_run(path));
    } catch (const Error& error) {
        log_debug("config", "{}: cannot find out with which values the run began: {}", path,
                  error.what());
    }
    // The new data may be rows, which have their own length, so the old context length is left out.
    if (options.new_data)
        std::erase_if(begun, [](const std::string& entry) {
            return entry.starts_with("dslaunch.data.context=");
        });
    return begun;
}

namespace {

// Returns true if SPEC's output on this machine has a checkpoint.
bool has_checkpoint(const launch::JobSpec& spec) {
    const auto tree = storage::make_disk_tree();
    const std::string root = spec.output_directory + "/checkpoints";
    return tree->list(root) && !storage::CheckpointStore(*tree, root, 0).list().empty();
}

// Warns if the run to resume had a model with another name. The weights come from the checkpoint,
// and not from the model that is named now.
void warn_of_other_model(const RunOptions& options, const launch::JobSpec& spec) {
    if (options.resume != "auto" || spec.output_directory.empty()) return;
    const auto run = launch::find_run_record(spec.output_directory);
    if (!run || run->target.empty()) return;
    const auto name_of = [](const std::string& target) {
        return std::filesystem::path(target + "/").parent_path().filename().string();
    };
    if (spec.transport == launch::TransportKind::kLocal && !has_checkpoint(spec)) return;
    if (name_of(run->target) != name_of(spec.target))
        log_warn("checkpoint",
                 "the run in {0} trained {1}: training continues from the weights in its "
                 "checkpoint, and the weights of {2} are not used",
                 printable(spec.output_directory), printable(run->target), printable(spec.target));
}

// Returns the step of the newest checkpoint in SPEC's output if a resumed run of STEPS has nothing
// left to do: all steps are done, and the weights are written. Otherwise returns 0.
int64_t finished_step(const RunOptions& options, const launch::JobSpec& spec, int64_t steps) {
    if (options.resume != "auto" || steps <= 0 || spec.output_directory.empty()) return 0;
    const std::string& output = spec.output_directory;
    const bool has_weights =
        exists(output + "/model.safetensors") ||
        exists(fmt::format("{}/{}/{}", output, storage::kAdapterFolder, storage::kAdapterWeights));
    if (!has_weights || spec.transport != launch::TransportKind::kLocal) return 0;
    const auto tree = storage::make_disk_tree();
    const std::string root = output + "/checkpoints";
    if (!tree->list(root)) return 0;
    for (const storage::StoredCheckpoint& found : storage::CheckpointStore(*tree, root, 0).list())
        if (found.is_complete && found.is_finite) return found.step >= steps ? found.step : 0;
    return 0;
}

// Refuses --resume=best for a folder without checkpoints, before anything starts there.
void require_best(const RunOptions& options, const launch::JobSpec& spec) {
    if (options.resume != "best" || spec.transport != launch::TransportKind::kLocal) return;
    if (has_checkpoint(spec)) return;
    fail(ExitCode::kCheckpoint,
         "--resume=best: there is no checkpoint in {}: name the folder of an earlier run with "
         "--output, or leave --resume out to begin a new run",
         printable(path_from_here(spec.output_directory)));
}

// Refuses a --resume=DIR that is a checkpoint of another program, and says how to start from it.
void refuse_foreign_resume(const RunOptions& options, const launch::JobSpec& spec) {
    if (options.resume.empty() || options.resume == "auto" || options.resume == "best") return;
    const std::string path = resolved_path(options.resume, spec.working_directory);
    const std::string word = shell_word(options.resume);
    const std::string config = fmt::format("{}/{}", path, storage::kAdapterConfig);
    if (exists(config)) {
        const auto adapter =
            nlohmann::json::parse(read_file(config, config::kConfigBytesMax), nullptr, false);
        const bool has_r = adapter.is_object() && adapter.contains("r") && adapter["r"].is_number();
        fail(ExitCode::kCheckpoint,
             "--resume: {} is an adapter, not a checkpoint: to start from it, give --lora "
             "{}init={}; to continue the run that wrote it, give --resume with --output RUN",
             printable(path), has_r ? fmt::format("r={},", adapter["r"].dump()) : "", word);
    }
    const storage::Place place = storage::place_at(path_from_here(path));
    if (place.kind == storage::PlaceKind::kDeepSpeed)
        storage::refuse_place(place, storage::PlaceUse::kResume, ExitCode::kCheckpoint);
    if (exists(path + "/trainer_state.json"))
        fail(ExitCode::kCheckpoint,
             "--resume: {} is a checkpoint of Hugging Face's Trainer: you can train its weights as "
             "a model (dslaunch {} --data FILE), but dslaunch cannot read its optimizer states",
             printable(path), word);
    const bool is_file = place.kind == storage::PlaceKind::kFile ||
                         place.kind == storage::PlaceKind::kFileOfModel ||
                         place.kind == storage::PlaceKind::kFileOfCheckpoint;
    if (path.ends_with(".safetensors") && place.kind == storage::PlaceKind::kFileOfModel)
        fail(ExitCode::kCheckpoint,
             "--resume: {} contains only weights, so it is not a checkpoint: train the model's "
             "folder instead: dslaunch {} --data FILE",
             printable(place.path), shell_word(place.whole));
    if (is_file || place.kind == storage::PlaceKind::kModels)
        storage::refuse_place(place, storage::PlaceUse::kCheckpoint, ExitCode::kCheckpoint);
}

// Refuses to continue a checkpoint of DeepSpeed in OUTPUT, where training would begin at step 0.
void refuse_deepspeed_output(const RunOptions& options, const std::string& output) {
    if (options.resume.empty()) return;
    const storage::Place place = storage::place_at(path_from_here(output));
    if (place.kind == storage::PlaceKind::kDeepSpeed)
        storage::refuse_place(place, storage::PlaceUse::kResume, ExitCode::kCheckpoint);
}

// Sets the values that options give.
void apply_options(const RunOptions& options, config::TrainConfig& config) {
    for (const std::string& assignment : options.set) {
        const auto by = options.set_by.find(assignment.substr(0, assignment.find('=')));
        config::apply_override(config, assignment,
                               by == options.set_by.end() ? "--set" : by->second);
    }
}

}  // namespace

namespace {

// Lets every attempt of an elastic job use only numbers of ranks that CONFIG allows, and chooses
// the hosts of the first attempt again. If CONFIG allows no possible number, the hosts stay, and
// the job is refused.
void fit_to_config(const config::TrainConfig& config, launch::JobSpec& spec) {
    launch::ElasticRules& rules = spec.elastic;
    if (!rules.on()) return;
    rules.fits = [config](int ranks) {
        return config::resolve(config, {.world_size = ranks}).problems.empty();
    };
    const std::vector<bool> is_bad(rules.hosts.size(), false);
    const auto chosen = launch::choose_hosts(is_bad, rules);
    if (!chosen || chosen->size() == spec.nodes.size()) return;
    const int before = spec.world_size;
    spec.nodes = rules.plan(*chosen);
    spec.world_size = launch::world_size_of(spec.nodes);
    log_info("config", "{} of {} hosts are used: the config is valid for {}, but not for {}",
             spec.nodes.size(), rules.hosts.size(), counted(spec.world_size, "rank"),
             counted(before, "rank"));
}

}  // namespace

JobConfig config_of_job(const RunOptions& options, const launch::JobSpec& spec) {
    const std::string model = resolved_path(options.target, spec.working_directory);
    launch::JobSpec unused = spec;
    require_target(options, model, unused);
    FoundConfig found = find_config(options, model, spec.working_directory);
    JobConfig config{found.config, {}};
    apply_options(options, found.config);
    config.resolved = config::resolve(found.config, {.world_size = spec.world_size});
    config::require_valid(config.resolved);
    return config;
}

TrainingFacts look_into_training_job(const RunOptions& options, launch::JobSpec& spec) {
    refuse_foreign_resume(options, spec);
    require_best(options, spec);
    const std::string model = resolved_path(options.target, spec.working_directory);
    require_target(options, model, spec);
    FoundConfig found = find_config(options, model, spec.working_directory);
    apply_options(options, found.config);
    config::take_begun(found.config, begun_of(options, spec.output_directory),
                       storage::model_folder_of(model).has_value());
    fit_to_config(found.config, spec);
    const config::Resolved resolved =
        config::resolve(found.config, {.world_size = spec.world_size});
    config::require_valid(resolved);
    // --device has precedence over the config, as in the worker.
    if (options.device == launch::DeviceRequest::kAuto) settle_device(resolved.config.device, spec);
    if (!found.path.empty() && options.config.empty()) spec.required_files.push_back(found.path);
    config::require_named_libraries(resolved, !options.config.empty());
    for (const std::string& file : resolved.config.op_libraries) require_library(file, found, spec);
    if (resolved.config.lora.on())
        spec.weight_files = {
            fmt::format("{}/{}", storage::kAdapterFolder, storage::kAdapterWeights),
            fmt::format("{}/{}", storage::kAdapterFolder, storage::kAdapterConfig)};
    if (!resolved.config.lora.init.empty()) require_adapter(resolved.config.lora.init, found, spec);
    if (resolved.config.lora.init.empty())
        if (const std::string text = storage::unused_adapter_text(model); !text.empty())
            log_warn("adapter", "{}; to train it further: --lora SPEC --set dslaunch.lora.init={}",
                     text, shell_word(options.target));
    // This check looks at the disk of this machine. Hosts with disks of their own repeat it there.
    if (!spec.output_directory.empty()) {
        refuse_deepspeed_output(options, spec.output_directory);
        const bool has_adapters = resolved.config.lora.on();
        storage::require_unused_output(*storage::make_disk_tree(), spec.output_directory,
                                       !options.resume.empty(),
                                       storage::config_files_of_result(model, has_adapters));
        if (const auto folder = storage::model_folder_of(model);
            folder && !has_adapters && options.resume.empty())
            storage::require_room_for_config(*folder, spec.output_directory);
    }
    const config::DataConfig& data = resolved.config.data;
    if (data.train_path.empty())
        fail(ExitCode::kInput,
             "no training data: give a file with --data FILE, or set dslaunch.data.train in the "
             "config");
    require_data(data.train_path, kTrain, found, spec);
    require_data(data.eval_path, kEval, found, spec);
    require_prompts(resolved.config.samples.file, found, spec);
    warn_of_other_model(options, spec);
    std::error_code unreadable;
    if (!data.eval_path.empty() &&
        std::filesystem::equivalent(find_data(data.train_path, kTrain, found, spec),
                                    find_data(data.eval_path, kEval, found, spec), unreadable))
        log_warn("data",
                 "the held-out data are the same as the training data, so their loss does not show "
                 "how well the model generalizes; --set dslaunch.data.eval_fraction=0.05 holds out "
                 "a part of the training data");
    TrainingFacts facts{finished_step(options, spec, resolved.config.steps), {}};
    if (options.verifies) return facts;  // its steps are no training
    spec.monitors = job_monitors(resolved.config, spec);
    facts.monitors = resolved.config.monitors;
    return facts;
}

}  // namespace dslaunch::launcher
