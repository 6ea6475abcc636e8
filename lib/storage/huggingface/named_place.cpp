#include "storage/huggingface/named_place.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "base/text/file_faults.h"
#include "base/text/words.h"
#include "storage/files/file_kind.h"
#include "storage/files/file_names.h"
#include "storage/files/input_file.h"
#include "storage/files/mapped_file.h"
#include "storage/gguf/gguf_file.h"
#include "storage/huggingface/model_folder.h"
#include "storage/named/place.h"

namespace dslaunch::storage {
namespace {

constexpr const char* kArchiveOfJob = "model.pt";
constexpr size_t kConfigBytesMax = size_t{16} << 20;
constexpr size_t kHubNameMax = 96;  // the hub's own limit

bool is_there(const std::filesystem::path& path) {
    std::error_code unreadable;
    return std::filesystem::exists(path, unreadable);
}

bool is_folder(const std::filesystem::path& path) {
    std::error_code unreadable;
    return std::filesystem::is_directory(path, unreadable);
}

bool is_word_of_hub(std::string_view word) {
    const auto fits = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '-' || c == '_' || c == '.';
    };
    return !word.empty() && word.size() <= kHubNameMax && word.front() != '.' &&
           word.front() != '-' && std::ranges::all_of(word, fits);
}

// Returns a sentence that says how to fetch PATH, which is ORG/NAME on the hub or only NAME.
std::string fetch_text(const std::string& path) {
    const std::string name = std::filesystem::path(path).filename().string();
    return path.find('/') != std::string::npos
               ? fmt::format(
                     "Download it: hf download {} --local-dir {}; then give {} as the model", path,
                     name, name)
               : fmt::format(
                     "To download a model from Hugging Face: hf download ORG/{0} --local-dir {0}",
                     name);
}

constexpr std::string_view kHub = "https://huggingface.co/";

// Returns true if NAME has an ending of files, so that it is no name of the hub.
bool ends_as_file(std::string_view name) {
    constexpr std::string_view kEndings[] = {".pt",          ".pt2",  ".pth", ".py",
                                             ".sh",          ".json", ".txt", ".jsonl",
                                             ".safetensors", ".bin",  ".gguf"};
    return std::ranges::any_of(kEndings, [&](auto ending) { return name.ends_with(ending); });
}

// Returns the folder of an adapter in FOLDER: FOLDER itself, or adapter/ in it.
std::optional<std::string> adapter_in(const std::string& folder) {
    for (const std::filesystem::path& place :
         {std::filesystem::path(folder), std::filesystem::path(folder) / kAdapterFolder})
        if (is_there(place / kAdapterConfig)) return place.string();
    return std::nullopt;
}

// Returns true if the JSON in the file at PATH describes a model.
bool describes_model(const std::string& path) {
    try {
        const auto json =
            nlohmann::json::parse(read_file(path, kConfigBytesMax), nullptr, /*exceptions=*/false);
        return json.is_object() && (json.contains("model_type") || json.contains("architectures"));
    } catch (const Error&) {
        return false;
    }
}

// Returns true if the file at PATH is a model's archive, or is named like one: its reader then says
// what is wrong with it.
bool may_be_archive(const std::string& path) {
    if (path.ends_with(".pt") || path.ends_with(".pt2") || path.ends_with(".gguf")) return true;
    const FileKind kind = file_kind(MappedFile(path).bytes());
    return kind == FileKind::kTorchScript || kind == FileKind::kExportedProgram ||
           kind == FileKind::kGguf;
}

// Returns the model that PATH stands for. If it NEEDS_WEIGHTS, refuses a model without weights that
// a run has left.
std::string model_at(const std::string& path, bool needs_weights) {
    if (!is_there(path)) fail_missing_model(path);
    const PlaceUse use = needs_weights ? PlaceUse::kModel : PlaceUse::kForm;
    const Place place = place_at(path);
    switch (place.kind) {
        case PlaceKind::kModel:
        case PlaceKind::kConfigOnly:
            return path;
        case PlaceKind::kArchiveRun:
            return (std::filesystem::path(path) / kArchiveOfJob).string();
        case PlaceKind::kFile:
        case PlaceKind::kFileOfModel:
            if (path.ends_with(".json")) {
                if (!needs_weights && describes_model(path)) return path;
                refuse_place(place, use);
            }
            require_model(path);
            if (place.kind == PlaceKind::kFileOfModel || !may_be_archive(path))
                refuse_place(place, use);
            return path;
        default:
            if (!needs_weights && model_folder_of(path)) return path;
            refuse_place(place, use);
    }
}

}  // namespace

bool is_hub_name(const std::string& path, const std::string& folder) {
    const size_t slash = path.find('/');
    if (slash == std::string::npos || path.find('/', slash + 1) != std::string::npos) return false;
    const std::string_view text(path);
    // If a folder has the name before the slash, PATH means a missing file in this folder, not a
    // model of the hub.
    const std::filesystem::path base(folder);
    return is_word_of_hub(text.substr(0, slash)) && is_word_of_hub(text.substr(slash + 1)) &&
           !ends_as_file(text) && !is_folder(base / path.substr(0, slash)) &&
           !is_there(base / path);
}

void fail_missing_model(const std::string& path) {
    if (path.starts_with(kHub) && is_hub_name(path.substr(kHub.size())))
        fail_missing_model(path.substr(kHub.size()));
    if (path.find("://") != std::string::npos)
        fail(ExitCode::kInput,
             "{}: is a URL, but dslaunch reads only local files and folders: download the model "
             "first, and give the name of the downloaded file or folder",
             printable(path));
    if (const Place place = place_at(path); place.kind != PlaceKind::kMissing)
        refuse_place(place, PlaceUse::kModel);
    std::error_code missing;
    const bool is_link = std::filesystem::is_symlink(path, missing);
    const std::string model = is_link ? "" : near_model(path);
    const std::string near = model.empty() ? near_file_text(path)
                                           : fmt::format("; did you mean `{}`?", printable(model));
    const std::string name = std::filesystem::path(path).filename().string();
    if (!is_link && is_hub_name(path))
        fail(ExitCode::kInput,
             "{} is not a local folder, and dslaunch does not download models. {}", path,
             is_there(name) ? fmt::format("The folder {0} is here: give {0} as the model", name)
                            : fetch_text(path));
    if (near.empty() && path.find('/') == std::string::npos && is_word_of_hub(path) &&
        !ends_as_file(path))
        fail(ExitCode::kInput,
             "{}: no such file or folder, and dslaunch does not download models. {}", path,
             fetch_text(path));
    fail(ExitCode::kInput, "{}: cannot open: {}{}", printable(path), errno_text(ENOENT), near);
}

std::string hub_data_text(const std::string& path, const std::string& folder) {
    std::string name = path;
    for (const std::string_view part : {kHub, std::string_view("datasets/")})
        if (name.starts_with(part)) name.erase(0, part.size());
    while (name.ends_with('/')) name.pop_back();
    if (!is_hub_name(name, folder) || is_there(std::filesystem::path(folder) / path)) return "";
    return fmt::format(
        "; nothing is downloaded; for a data set of the hub: `hf download --repo-type dataset {} "
        "--local-dir {}`, then `dslaunch data prepare` with a file in that folder",
        name, name.substr(name.find('/') + 1));
}

void refuse_download(std::string_view word, const std::string& name) {
    constexpr std::string_view kWords[] = {"download", "pull", "fetch", "get", "clone"};
    if (std::ranges::find(kWords, word) == std::end(kWords)) return;
    std::string model = name.starts_with(kHub) ? name.substr(kHub.size()) : name;
    while (model.ends_with('/')) model.pop_back();
    const size_t slash = model.find('/');
    const bool is_name =
        is_word_of_hub(model.substr(0, slash)) &&
        (slash == std::string::npos || is_word_of_hub(std::string_view(model).substr(slash + 1)));
    fail(ExitCode::kUsage, "`{}`: dslaunch does not download models. {}", word,
         fetch_text(is_name ? model : "NAME"));
}

std::optional<std::string> archive_of_job(const std::string& path) {
    if (!is_folder(path) || model_folder_of(path)) return std::nullopt;
    const std::filesystem::path archive = std::filesystem::path(path) / kArchiveOfJob;
    return is_there(archive) ? std::optional(archive.string()) : std::nullopt;
}

std::string model_at(const std::string& path) {
    return model_at(path, /*needs_weights=*/true);
}

std::string model_form_at(const std::string& path) {
    return model_at(path, /*needs_weights=*/false);
}

std::string folder_model_at(const std::string& path, std::string_view command) {
    std::string model = model_at(path);
    if (model_folder_of(model)) return model;
    fail(ExitCode::kInput,
         "{0}: is a file, but `{1}` needs a Hugging Face folder with config.json, tokenizer and "
         "weights; {2}. To only generate text, use the file as it is: dslaunch generate {3} "
         "--prompt TEXT, or --prompt-ids 5,17,2 if the tokens of the model are not bytes",
         printable(model), command, folder_of_archive_text(model), shell_word(model));
}

std::string folder_of_archive_text(const std::string& archive) {
    const std::string job = std::filesystem::path(archive).parent_path().string();
    if (archive_of_job(job) != archive)
        return "if `dslaunch model import FOLDER` made it, give FOLDER instead";
    return fmt::format(
        "if `dslaunch model import FOLDER` made the archive that was trained, export the result to "
        "a folder NEW, and give NEW instead: dslaunch ckpt export {} NEW --format hf "
        "--config-from FOLDER",
        shell_word(job));
}

std::string adapter_at(const std::string& path) {
    if (path.empty()) return path;
    if (auto adapter = adapter_in(path)) return *std::move(adapter);
    if (!is_there(path)) fail_missing_model(path);
    refuse_place(place_at(path), PlaceUse::kAdapter);
}

std::string unused_adapter_text(const std::string& model) {
    const std::filesystem::path folder(model);
    if (!model_folder_of(model) || !is_there(folder / kAdapterConfig)) return "";
    return fmt::format("{} also contains an adapter, which is not used", printable(model));
}

std::string tokenizer_folder_at(const std::string& path) {
    if (!is_there(path)) fail_missing_model(path);
    if (is_gguf_file(path)) require_model(path);  // says how to make a folder of it
    if (is_there(std::filesystem::path(path) / "tokenizer.json")) return path;
    const Place place = place_at(path);
    if (place.kind == PlaceKind::kModel || place.kind == PlaceKind::kConfigOnly) return path;
    refuse_place(place, PlaceUse::kTokenizer);
}

std::string run_name(const std::string& path, const std::string& folder) {
    constexpr size_t kNameMax = 80;
    std::error_code missing;
    std::filesystem::path place = std::filesystem::path(folder) / path;
    if (!place.has_filename() || place.filename() == "." || place.filename() == "..") {
        place = std::filesystem::weakly_canonical(place, missing);
        if (!place.has_filename()) place = place.parent_path();
    }
    if (place.extension() == ".json" && place.has_parent_path() && !is_folder(place))
        place = place.parent_path();  // the config.json of a model
    const bool is_archive = place.extension() == ".pt" || place.extension() == ".pt2";
    std::string name;
    for (const char c :
         (is_archive && !is_folder(place) ? place.stem() : place.filename()).string()) {
        if (is_word_of_hub(std::string("x") + c)) {
            name += c;
        } else if (!name.ends_with('_')) {
            name += '_';
        }
    }
    const size_t begin = name.find_first_not_of("._-");
    return begin == std::string::npos ? "model" : name.substr(begin, kNameMax);
}

}  // namespace dslaunch::storage
