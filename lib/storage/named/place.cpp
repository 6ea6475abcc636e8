#include "storage/named/place.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>

#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"
#include "base/text/file_faults.h"
#include "base/text/words.h"
#include "storage/files/file_names.h"
#include "storage/files/input_file.h"
#include "storage/named/step_folder.h"

namespace dslaunch::storage {
namespace {

namespace fs = std::filesystem;

constexpr size_t kJsonBytesMax = size_t{64} << 20;
constexpr size_t kEntriesMax = 10'000;
constexpr size_t kModelsShown = 5;

bool is_at(const fs::path& path) {
    std::error_code unreadable;
    return fs::exists(path, unreadable);
}

bool is_folder_at(const fs::path& path) {
    std::error_code unreadable;
    return fs::is_directory(path, unreadable);
}

std::set<std::string> names_in(const fs::path& folder) {
    std::set<std::string> names;
    std::error_code unreadable;
    for (fs::directory_iterator entry(folder, unreadable), end;
         entry != end && names.size() < kEntriesMax; entry.increment(unreadable))
        names.insert(entry->path().filename().string());
    return names;
}

bool is_whole_step(const fs::path& folder) {
    const auto step = parse_step_folder(folder.filename().string());
    return step && step->kind == StepFolderKind::kCheckpoint && is_at(folder / kManifestName);
}

bool has_steps(const fs::path& folder) {
    return std::ranges::any_of(
        names_in(folder), [&](const std::string& name) { return is_whole_step(folder / name); });
}

bool has_weights(const std::set<std::string>& names) {
    return names.contains("model.safetensors") || names.contains("model.safetensors.index.json") ||
           names.contains("model.gguf");
}

bool has_pickles(const std::set<std::string>& names) {
    return names.contains("pytorch_model.bin") || names.contains("pytorch_model.bin.index.json");
}

bool is_deepspeed(const fs::path& folder, const std::set<std::string>& names) {
    return std::ranges::any_of(names, [&](const std::string& name) {
        return is_deepspeed_entry(name, is_folder_at(folder / name));
    });
}

// Returns true if a file with NAME in the folder of a model is a part of the model.
bool is_part_of_model(std::string_view name) {
    return name.ends_with(".json") || name.ends_with(".jinja") || name.starts_with("tokenizer") ||
           name == "merges.txt" || name == "vocab.txt" ||
           ((name.starts_with("model") || name.starts_with("pytorch_model")) &&
            (name.ends_with(".safetensors") || name.ends_with(".bin")));
}

// Returns the folder of the run that contains STEPS, a folder of checkpoints; "" if there is none.
std::string run_of_steps(const fs::path& steps) {
    const fs::path run = folder_of(steps.string());
    return steps.filename() == "checkpoints" ? run.string() : "";
}

// Returns true if the entry NAME of FOLDER is a model that a command can use.
bool is_model(const fs::path& path) {
    if (!is_folder_at(path)) {
        const std::string ending = path.extension().string();
        return ending == ".pt" || ending == ".pt2" || ending == ".gguf";
    }
    const std::set<std::string> names = names_in(path);
    const bool is_run = names.contains("run.json") || names.contains("metrics.jsonl");
    return (names.contains("config.json") &&
            (has_weights(names) || has_pickles(names) || !is_run)) ||
           (names.contains("model.pt") && !names.contains(kAdapterConfig));
}

std::vector<std::string> models_in(const std::string& folder) {
    std::vector<std::string> models;
    for (const std::string& name : names_in(folder)) {
        const std::string path = (fs::path(folder) / name).lexically_normal().string();
        if (is_model(path)) models.push_back(path);
    }
    return models;
}

// Returns the kind of FOLDER if it is a run without weights.
PlaceKind run_kind(const fs::path& folder, const std::set<std::string>& names, PlaceKind other) {
    if (has_steps(folder / "checkpoints")) return PlaceKind::kUnsavedRun;
    const bool is_run = names.contains("run.json") || names.contains("metrics.jsonl");
    return is_run ? PlaceKind::kEmptyRun : other;
}

void look_into_folder(Place& place) {
    fs::path folder = fs::path(place.path).lexically_normal();
    if (!folder.has_filename()) folder = folder.parent_path();
    const std::set<std::string> names = names_in(folder);
    const auto kind = [&] {
        if (names.contains("config.json")) {
            if (has_weights(names) || has_pickles(names)) return PlaceKind::kModel;
            const PlaceKind run = run_kind(folder, names, PlaceKind::kConfigOnly);
            return run == PlaceKind::kConfigOnly && is_deepspeed(folder, names)
                       ? PlaceKind::kDeepSpeed
                       : run;
        }
        if (names.contains("model.pt")) return PlaceKind::kArchiveRun;
        if (names.contains(kAdapterConfig) || is_at(folder / kAdapterFolder / kAdapterConfig))
            return PlaceKind::kAdapter;
        if (names.contains(std::string(kManifestName)) ||
            parse_step_folder(folder.filename().string())) {
            place.whole = run_of_steps(folder_of(folder.string()));
            return PlaceKind::kCheckpoint;
        }
        if (has_steps(folder)) {
            place.whole = run_of_steps(folder);
            return PlaceKind::kCheckpoints;
        }
        if (is_deepspeed(folder, names)) return PlaceKind::kDeepSpeed;
        if (has_weights(names)) return PlaceKind::kWeights;
        const PlaceKind run = run_kind(folder, names, PlaceKind::kFolder);
        if (run != PlaceKind::kFolder) return run;
        place.models = models_in((folder / "snapshots").string());
        if (!place.models.empty()) return PlaceKind::kHubCache;
        if (folder.extension() == ".partial" && !names.empty() &&
            names.begin()->starts_with("layer-"))
            return PlaceKind::kPartial;
        if (names.empty()) return PlaceKind::kEmpty;
        place.models = models_in(folder.string());
        return place.models.empty() ? PlaceKind::kFolder : PlaceKind::kModels;
    };
    place.kind = kind();
}

// Recognizes RUN/best and RUN/latest, which stand for a checkpoint.
void look_for_pointer(Place& place) {
    const fs::path path(place.path);
    const std::string above = folder_of(place.path);
    if (path.filename() != "best" && path.filename() != "latest") return;
    if (!has_steps(fs::path(above) / "checkpoints") && !has_steps(above)) return;
    place.kind = PlaceKind::kCheckpoint;
    place.whole = has_steps(above) ? run_of_steps(above) : above;
}

void look_at_file(Place& place) {
    const std::string folder = folder_of(place.path);
    const std::string name = fs::path(place.path).filename().string();
    place.kind = PlaceKind::kFile;
    place.whole = folder;
    if (is_at(fs::path(folder) / kAdapterConfig) &&
        (is_part_of_model(name) || name.starts_with("adapter_"))) {
        place.kind = PlaceKind::kFileOfAdapter;
    } else if (is_at(fs::path(folder) / "config.json") && is_part_of_model(name)) {
        place.kind = PlaceKind::kFileOfModel;
    } else if (is_at(fs::path(folder) / kManifestName)) {
        place.kind = PlaceKind::kFileOfCheckpoint;
    } else {
        place.whole.clear();
    }
}

// Returns the JSON in the file at PATH; null if it cannot be read.
nlohmann::json json_at(const fs::path& path) {
    try {
        return nlohmann::json::parse(read_file(path.string(), kJsonBytesMax), nullptr, false);
    } catch (const Error&) {
        return nullptr;
    }
}

std::string text_in_json(const nlohmann::json& json, const char* key) {
    const bool has = json.is_object() && json.contains(key) && json[key].is_string();
    return has ? json[key].get<std::string>() : "";
}

// Returns the path of NAME as the job that wrote RUN/run.json meant it; "" if nothing is there.
std::string place_of_job(const std::string& run, const std::string& name) {
    const std::string directory =
        text_in_json(json_at(fs::path(run) / "run.json"), "working_directory");
    const fs::path path = fs::path(directory) / name;
    return !directory.empty() && is_at(path) ? path_from_here(path.lexically_normal().string())
                                             : "";
}

std::string shown(const std::string& path) {
    return printable(path_from_here(fs::path(path).lexically_normal().string()));
}

// Returns PATH as a word of a command that is shown.
std::string word_of(const std::string& path) {
    return shell_word(path_from_here(fs::path(path).lexically_normal().string()));
}

// Returns the command that makes a model of the weights in CHECKPOINTS, one or several of RUN.
std::string export_text(const std::string& checkpoints, const std::string& run) {
    const fs::path folder(run);
    const std::string target = run.empty() ? "" : target_of_run(run);
    const std::string archive = is_at(folder / "model.pt") ? (folder / "model.pt").string()
                                : is_folder_at(target)     ? ""
                                                           : target;
    if (is_at(folder / "config.json") && !run.empty())
        return fmt::format("dslaunch ckpt export {} NEW --format hf, then give NEW",
                           word_of(checkpoints));
    if (!run.empty() && !archive.empty())
        return fmt::format(
            "dslaunch ckpt export {} NEW.pt --format torchscript --model {}, then "
            "give NEW.pt",
            word_of(checkpoints), word_of(archive));
    return fmt::format("dslaunch ckpt export {} NEW --format hf --config-from {}, then give NEW{}",
                       word_of(checkpoints), target.empty() ? "FOLDER" : word_of(target),
                       target.empty() ? " (FOLDER: the Hugging Face folder that was trained)" : "");
}

// Returns true if the checkpoints in STEPS are of an adapter.
bool are_of_adapter(const fs::path& steps) {
    const auto has_base = [](const fs::path& step) {
        return !text_in_json(json_at(step / kManifestName), "base_fingerprint").empty();
    };
    if (is_at(steps / kManifestName)) return has_base(steps);
    return std::ranges::any_of(names_in(steps), [&](const std::string& name) {
        return is_whole_step(steps / name) && has_base(steps / name);
    });
}

// Returns how the adapter at PATH is used with its base, and how both become one model.
std::string as_model_text(const std::string& path) {
    const BaseModel base = base_of_adapter(path);
    const bool is_known = !base.path.empty() || !base.near.empty();
    const std::string path_of_base = base.path.empty() ? base.near : base.path;
    const std::string model = is_known ? word_of(path_of_base) : "MODEL";
    std::string why;
    if (base.name.empty())
        why = "; its config does not name the model that it was trained with";
    else if (base.path.empty())
        why = fmt::format(
            "; it was trained with {}, which is not there (moved, renamed or not "
            "fetched){}",
            printable(base.name), is_known ? fmt::format("; perhaps it is now {}", model) : "");
    return fmt::format(
        "{0}; to use it: dslaunch generate {1} --adapter {2} --prompt TEXT; to make one model of "
        "both: dslaunch model merge {1} {2} -o NEW",
        why, model, word_of(path));
}

// Returns the way from checkpoints to a model.
std::string checkpoint_as_model(const Place& place) {
    const std::string& run = place.whole;
    const fs::path steps = is_at(place.path) ? fs::path(place.path) : fs::path(run) / "checkpoints";
    if (!are_of_adapter(steps)) return "; to use its weights: " + export_text(place.path, run);
    if (!run.empty() && is_at(fs::path(run) / kAdapterFolder / kAdapterConfig))
        return "; its run trained an adapter" + as_model_text(run);
    return fmt::format(
        "; its run trains an adapter, and writes it when it ends: dslaunch MODEL --data FILE "
        "--lora SPEC --output {} --resume",
        run.empty() ? "RUN" : word_of(run));
}

std::string list_text(const std::vector<std::string>& models) {
    std::vector<std::string> names;
    for (const std::string& model : models)
        if (names.size() < kModelsShown) names.push_back(printable(model));
    return join(names, ", ") + (models.size() > kModelsShown ? ", …" : "");
}

std::string import_text(const Place& place) {
    return fmt::format(
        "dslaunch ckpt import {} NEW, then dslaunch MODEL --data FILE --output NEW --resume",
        word_of(place.path));
}

// Returns true if the file at PATH is a config of DeepSpeed or dslaunch.
bool is_ds_config(const std::string& path) {
    if (!path.ends_with(".json")) return false;
    const nlohmann::json json = json_at(path);
    const auto has = [&](const char* key) { return json.is_object() && json.contains(key); };
    return has("train_batch_size") || has("train_micro_batch_size_per_gpu") || has("dslaunch") ||
           has("zero_optimization") || has("gradient_accumulation_steps") || has("optimizer");
}

// Returns the words that say what PLACE is.
std::string kind_text(const Place& place) {
    const std::string of_run =
        place.whole.empty() ? "" : fmt::format(" of the run {}", shown(place.whole));
    switch (place.kind) {
        case PlaceKind::kMissing:
            return "does not exist";
        case PlaceKind::kModel:
            return "is a model";
        case PlaceKind::kConfigOnly:
            return "is the folder of a model, but has no weights";
        case PlaceKind::kArchiveRun:
            return "is the folder of a run that trained an archive";
        case PlaceKind::kUnsavedRun:
            return "is the folder of a job that has checkpoints, but has not written its weights";
        case PlaceKind::kEmptyRun:
            return "is the folder of a run that has neither weights nor checkpoints";
        case PlaceKind::kAdapter:
            return "contains an adapter";
        case PlaceKind::kCheckpoint:
            return "is a checkpoint" + of_run;
        case PlaceKind::kCheckpoints:
            return "is the folder of the checkpoints" + of_run;
        case PlaceKind::kDeepSpeed:
            return "is a DeepSpeed checkpoint";
        case PlaceKind::kHubCache:
            return "is a folder of the Hugging Face cache, and the model is a snapshot in it";
        case PlaceKind::kPartial:
            return "contains the finished layers of a `dslaunch compress` that was interrupted";
        case PlaceKind::kWeights:
            return "has weights but no config.json";
        case PlaceKind::kModels:
            return "is a folder with models in it";
        case PlaceKind::kEmpty:
            return "is an empty folder";
        case PlaceKind::kFolder:
            return "is a folder";
        case PlaceKind::kFileOfModel:
            return "belongs to a model";
        case PlaceKind::kFileOfAdapter:
            return "is a file of an adapter";
        case PlaceKind::kFileOfCheckpoint:
            return "is a file of a checkpoint";
        case PlaceKind::kFile:
            break;
    }
    return is_ds_config(place.path) ? "is a ds_config" : file_text(place.path);
}

// Returns the way from PLACE to a model.
std::string model_text(const Place& place) {
    switch (place.kind) {
        case PlaceKind::kFileOfModel:
            return ": give the model's folder, " + printable(place.whole);
        case PlaceKind::kFileOfAdapter:
            return ", not a model" + as_model_text(place.whole);
        case PlaceKind::kAdapter:
            return ", not a model" + as_model_text(place.path);
        case PlaceKind::kFileOfCheckpoint:
            return checkpoint_as_model(place_at(place.whole));
        case PlaceKind::kCheckpoint:
        case PlaceKind::kCheckpoints:
            return checkpoint_as_model(place);
        case PlaceKind::kUnsavedRun: {
            Place steps = place_at((fs::path(place.path) / "checkpoints").string());
            steps.whole = place.path;
            if (are_of_adapter(steps.path)) return checkpoint_as_model(steps);
            return "; to take them from its newest checkpoint: " +
                   export_text(place.path, place.path);
        }
        case PlaceKind::kDeepSpeed:
            return fmt::format(
                "; to continue its training: {}; to use its weights: dslaunch ckpt import {} NEW, "
                "then dslaunch ckpt export NEW NEWMODEL --format hf --config-from FOLDER (FOLDER: "
                "the Hugging Face folder that was trained)",
                import_text(place), word_of(place.path));
        case PlaceKind::kHubCache:
        case PlaceKind::kModels:
            return place.models.size() == 1 ? ": give " + printable(place.models.front())
                                            : ": give one of them: " + list_text(place.models);
        case PlaceKind::kWeights:
            return ": copy config.json and the tokenizer's files from the folder of the model that "
                   "was trained; `dslaunch ckpt export RUN NEW --format hf --config-from FOLDER` "
                   "does both";
        case PlaceKind::kConfigOnly:
            return ": expected model.safetensors, or model.safetensors.index.json and its files; "
                   "`dslaunch plan` works without weights; to fetch them: hf download ORG/NAME "
                   "--local-dir " +
                   word_of(place.path);
        case PlaceKind::kEmptyRun:
            return ": they were moved or removed, or the run ended before its first save";
        case PlaceKind::kPartial:
            return ", not a model: run the same command again to finish the model";
        case PlaceKind::kArchiveRun:
            return ": give " + shown((fs::path(place.path) / "model.pt").string());
        case PlaceKind::kFolder:
            return " without a config.json, not a model (a Hugging Face folder has one; "
                   "torch.export.save and torch.jit.save write a file)";
        case PlaceKind::kFile:
            if (is_ds_config(place.path))
                return ", not a model: dslaunch MODEL --data FILE --config " + word_of(place.path);
            return ", not a model: a model is a Hugging Face folder, or a file that "
                   "torch.export.save or torch.jit.save wrote";
        default:
            return ", not a model";
    }
}

// Returns the way from PLACE to a tokenizer.
std::string tokenizer_text(const Place& place) {
    const auto has_tokenizer = [](const fs::path& folder) {
        return is_at(folder / "tokenizer.json");
    };
    const bool is_adapter =
        place.kind == PlaceKind::kAdapter || place.kind == PlaceKind::kFileOfAdapter;
    if (is_adapter) {
        const BaseModel base =
            base_of_adapter(place.kind == PlaceKind::kAdapter ? place.path : place.whole);
        const std::string now = base.path.empty() ? base.near : base.path;
        return ", which has no tokenizer: give the model that it was trained with" +
               (base.name.empty() ? "" : ", " + printable(base.name)) +
               (now.empty() || now == base.name ? "" : " (now " + shown(now) + "?)");
    }
    if (!place.whole.empty() && has_tokenizer(place.whole))
        return ": give the model's folder, " + printable(place.whole);
    if (place.kind == PlaceKind::kHubCache || place.kind == PlaceKind::kModels)
        return model_text(place);
    return ", but `--model` needs the folder of a Hugging Face model with a tokenizer.json. To use "
           "bytes as tokens: dslaunch tokens bytes FILE -o FILE.tokens";
}

std::string adapter_text(const Place& place) {
    constexpr const char* kRule =
        "an adapter is a folder with adapter_config.json, which a job with --lora writes to its "
        "--output folder";
    if (place.kind == PlaceKind::kFileOfAdapter)
        return ": give the adapter's folder, " + printable(place.whole);
    const Place steps = place.kind == PlaceKind::kFileOfCheckpoint ? place_at(place.whole) : place;
    const bool is_step =
        steps.kind == PlaceKind::kCheckpoint || steps.kind == PlaceKind::kCheckpoints;
    if (is_step && is_at(fs::path(steps.whole) / kAdapterFolder / kAdapterConfig))
        return fmt::format(
            ", not an adapter: give the run, {}, which has the adapter that it "
            "trained",
            shown(steps.whole));
    if (is_step && are_of_adapter(steps.path)) return checkpoint_as_model(steps);
    return fmt::format(", not an adapter: {}", kRule);
}

std::string checkpoint_text(const Place& place) {
    switch (place.kind) {
        case PlaceKind::kFileOfCheckpoint:
            return ": give the checkpoint's folder, " + printable(place.whole);
        case PlaceKind::kDeepSpeed:
            return ": convert it: " + import_text(place);
        default:
            return ", not a checkpoint: give the --output folder of a run, its checkpoints folder, "
                   "or one step-N folder in it";
    }
}

// Returns the way to continue the run that PLACE belongs to.
std::string resume_text(const Place& place) {
    if (place.kind == PlaceKind::kDeepSpeed)
        return ", and --resume continues dslaunch's own: " + import_text(place);
    if (place.kind == PlaceKind::kCheckpoint && !place.whole.empty())
        return ", not the run's folder: use --output " + word_of(place.whole);
    return checkpoint_text(place);
}

std::string foreign_text(const Place& place) {
    switch (place.kind) {
        case PlaceKind::kFileOfModel:
            return ": give the model's folder, " + printable(place.whole);
        case PlaceKind::kCheckpoint:
        case PlaceKind::kCheckpoints:
        case PlaceKind::kUnsavedRun:
        case PlaceKind::kFileOfCheckpoint:
            return fmt::format(
                "; it needs no import: dslaunch MODEL --data FILE --resume={} "
                "--output NEW continues from it",
                word_of(place.kind == PlaceKind::kFileOfCheckpoint ? place.whole : place.path));
        case PlaceKind::kAdapter:
        case PlaceKind::kFileOfAdapter:
            return fmt::format(
                ", which needs no import; to train it further: dslaunch MODEL --data FILE --lora "
                "SPEC --set dslaunch.lora.init={}",
                word_of(place.kind == PlaceKind::kAdapter ? place.path : place.whole));
        case PlaceKind::kModel:
        case PlaceKind::kArchiveRun:
            return ", which needs no import: dslaunch " + word_of(place.path) + " --data FILE";
        case PlaceKind::kHubCache:
        case PlaceKind::kModels:
            return model_text(place);
        default:
            if (place.path.ends_with(".pt") || place.path.ends_with(".pt2"))
                return ", which cannot be imported, but can be trained as it is: dslaunch " +
                       word_of(place.path) + " --data FILE";
            return ", which cannot be imported: expected the folder of a DeepSpeed checkpoint, a "
                   "folder with model.safetensors, or a .safetensors file of weights";
    }
}

}  // namespace

Place place_at(const std::string& path) {
    Place place;
    place.path = path;
    if (!is_at(path)) {
        look_for_pointer(place);
        return place;
    }
    if (is_folder_at(path)) {
        look_into_folder(place);
    } else {
        look_at_file(place);
    }
    return place;
}

std::string place_text(const Place& place, PlaceUse use) {
    const std::string text = kind_text(place);
    switch (use) {
        case PlaceUse::kModel:
        case PlaceUse::kForm:
            return text + model_text(place);
        case PlaceUse::kTokenizer:
            return text + tokenizer_text(place);
        case PlaceUse::kAdapter:
            return text + adapter_text(place);
        case PlaceUse::kCheckpoint:
            return text + checkpoint_text(place);
        case PlaceUse::kForeign:
            return text + foreign_text(place);
        case PlaceUse::kResume:
            return text + resume_text(place);
        case PlaceUse::kConfig:
            break;
    }
    const bool is_archive = place.kind == PlaceKind::kFile &&
                            (place.path.ends_with(".pt") || place.path.ends_with(".pt2"));
    return text + ", not a config, which is a .json or .yaml file" +
           (is_archive ? "; to see the plan of a training with the config in the archive: dslaunch "
                         "plan " +
                             word_of(place.path)
                       : "");
}

void refuse_place(const Place& place, PlaceUse use, ExitCode code, const std::string& more) {
    fail(code, "{}: {}{}", printable(place.path), place_text(place, use),
         more.empty() ? "" : "; " + more);
}

void refuse_part(const std::string& path) {
    const Place place = place_at(path);
    if (place.kind == PlaceKind::kFileOfModel || place.kind == PlaceKind::kFileOfAdapter ||
        place.kind == PlaceKind::kFileOfCheckpoint)
        refuse_place(place, PlaceUse::kModel);
}

BaseModel base_of_adapter(const std::string& path) {
    const fs::path folder(path);
    const bool is_inner = is_at(folder / kAdapterConfig);
    const fs::path adapter = is_inner ? folder : folder / kAdapterFolder;
    BaseModel base;
    base.name = text_in_json(json_at(adapter / kAdapterConfig), "base_model_name_or_path");
    if (base.name.empty()) return base;
    const std::string run =
        is_inner ? folder_of(folder.lexically_normal().string()) : folder.string();
    const std::string last = fs::path(base.name).filename().string();
    for (const std::string& place : {base.name, place_of_job(run, base.name), last}) {
        if (place.empty() || !is_at(place) || !is_model(place)) continue;
        base.path = place;
        return base;
    }
    base.near = near_model(base.name);
    return base;
}

std::string target_of_run(const std::string& run) {
    const std::string target = text_in_json(json_at(fs::path(run) / "run.json"), "target");
    return target.empty() ? "" : place_of_job(run, target);
}

std::string near_model(const std::string& path) {
    return near_file(path, [](const std::string& place) { return is_model(place); });
}

}  // namespace dslaunch::storage
