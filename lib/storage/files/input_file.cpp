#include "storage/files/input_file.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/text/file_faults.h"
#include "base/text/words.h"
#include "base/text_bytes.h"
#include "storage/files/file_kind.h"
#include "storage/files/file_names.h"
#include "storage/files/mapped_file.h"
#include "storage/files/safetensors.h"

namespace dslaunch::storage {
namespace {

constexpr const char* kMakeOne =
    "weights of a Hugging Face model belong in the folder with its config.json: give that folder; "
    "for other weights, make a model in Python from the module that has these weights: "
    "torch.export.save(torch.export.export(module, example_inputs), \"train.pt2\"), or "
    "torch.jit.save(torch.jit.script(module), \"train.pt\")";

bool is_there(const std::filesystem::path& path) {
    std::error_code unreadable;
    return std::filesystem::exists(path, unreadable);
}

// Returns advice on the weights at PATH. If files next to them show to which model the weights
// belong, the advice names this model. Otherwise it says how to make a model in Python.
std::string model_of_weights(const std::string& path) {
    const std::filesystem::path file(path);
    const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
    const std::string place = printable(folder.string());
    if (is_there(folder / kAdapterConfig))
        return fmt::format(
            "it belongs to the adapter {}; use the adapter with its model: dslaunch generate "
            "FOLDER --adapter {}",
            place, shell_word(folder.string()));
    if (is_there(folder / "config.json"))
        return fmt::format("it belongs to a model: give the model's folder, {0}", place);
    const std::string stem = file.stem().string();
    for (const std::string& name : {stem + ".pt2", stem + ".pt", std::string("model.pt")}) {
        const std::filesystem::path model = file.parent_path() / name;
        if (model != file && is_there(model))
            return fmt::format("the model next to it has the weights and the graph: give {}",
                               printable(model.string()));
    }
    return kMakeOne;
}

// Returns true for a .safetensors file that contains rows of training data, not weights.
bool holds_rows(const std::string& path, std::span<const std::byte> bytes) {
    try {
        const std::vector<SafetensorsEntry> entries = parse_safetensors(path, bytes).entries;
        return std::ranges::any_of(entries, [](const SafetensorsEntry& entry) {
            const bool is_integer = entry.dtype == DType::kI32 || entry.dtype == DType::kI64;
            return is_integer && entry.shape.size() == 2 &&
                   (entry.name == "tokens" || entry.name == "input_ids");
        });
    } catch (const Error&) {
        return false;
    }
}

// Returns true for a .safetensors file that contains the weights of a model or an adapter: its
// tensors are named like weights, and are not columns with the same number of rows.
bool holds_weights(const std::string& path, std::span<const std::byte> bytes) {
    try {
        const std::vector<SafetensorsEntry> entries = parse_safetensors(path, bytes).entries;
        const auto rows = [](const SafetensorsEntry& entry) {
            return entry.shape.empty() ? -1 : entry.shape.front();
        };
        const auto is_weight = [](const SafetensorsEntry& entry) {
            return entry.name.ends_with(".weight") || entry.name.ends_with(".bias");
        };
        return std::ranges::any_of(entries, is_weight) &&
               std::ranges::any_of(entries, [&](const SafetensorsEntry& entry) {
                   return rows(entry) != rows(entries.front());
               });
    } catch (const Error&) {
        return false;
    }
}

// Returns a hint on how to train with the data at PATH.
std::string as_data(const std::string& path) {
    return fmt::format("to train on it: dslaunch FOLDER --data {}", printable(path));
}

// Returns the commands that make rows of tokens from the text or table at PATH and train FOLDER
// with them.
std::string two_commands(const std::string& path);

// Returns what the file at PATH is instead of the GGUF file that its name promises.
std::string no_gguf(FileKind kind, std::span<const std::byte> bytes) {
    if (const std::string fault = download_fault(text_in(bytes)); !fault.empty()) return fault;
    return fmt::format(
        "is {}, not a GGUF file{}", file_kind_name(kind),
        kind == FileKind::kSafetensors
            ? "; weights in this form belong in the folder of their model, beside its config.json, "
              "with the ending .safetensors"
        : kind == FileKind::kOther ? ": it is damaged, or not what its name says; download or copy "
                                     "it again"
                                   : "; rename it if its content is what you want");
}

std::optional<std::string> why_no_model(const std::string& path, FileKind kind,
                                        std::span<const std::byte> bytes) {
    if (path.ends_with(".gguf") && kind != FileKind::kGguf) return no_gguf(kind, bytes);
    switch (kind) {
        case FileKind::kTorchScript:
        case FileKind::kExportedProgram:
        case FileKind::kUnreadZip:
        case FileKind::kOther:
            return std::nullopt;
        case FileKind::kText:
            if (path.ends_with(".pt") || path.ends_with(".pt2")) return std::nullopt;
            return "is text, not a model (such as a Hugging Face folder, train.pt2 or train.pt). "
                   "To train on it: " +
                   two_commands(path);
        case FileKind::kPickle:
            return std::string(
                       "is a pickle written by torch.save: it has weights, but not the model's "
                       "graph; ") +
                   model_of_weights(path);
        case FileKind::kSafetensors:
            if (holds_rows(path, bytes))
                return "contains rows of tokens, not a model; " + as_data(path);
            return std::string("contains weights (safetensors), but not the model's graph; ") +
                   model_of_weights(path);
        case FileKind::kOnnx:
            return std::string(
                "is an ONNX graph, which is only for inference; export the original module "
                "instead: torch.export.save(torch.export.export(module, example_inputs), "
                "\"train.pt2\")");
        case FileKind::kGguf:
            return fmt::format(
                "is a GGUF file of llama.cpp, which only generate, serve and eval use as it is, in "
                "a single process; make a folder from it: dslaunch model import {} -o FOLDER",
                shell_word(path));
        case FileKind::kNpy:
            return "contains NumPy arrays, not a model; " + as_data(path);
        case FileKind::kNpz:
            return "contains NumPy arrays: it is data, not a model";
        case FileKind::kTable:
            return "is a table (Parquet, Arrow or HDF5): it is data, not a model. To train on the "
                   "text in it: " +
                   two_commands(path);
        case FileKind::kZip:
            return "is a zip archive, but not a model: save models with torch.export.save or "
                   "torch.jit.save";
        case FileKind::kCompressed:
            return "is compressed or an archive of files: unpack it";
        case FileKind::kNoDownload:
            return download_fault(text_in(bytes));
    }
    return std::nullopt;
}

constexpr const char* kAsColumns =
    "save its columns as tensors, with rows as the first dimension, in a .safetensors file "
    "(safetensors.numpy.save_file in Python)";

// Returns the name of a file of rows made from the text at PATH, as a word of a command.
std::string rows_of(const std::string& path) {
    return shell_word(
        std::filesystem::path(path).filename().replace_extension(".safetensors").string());
}

// Returns the command that makes rows of tokens from the text at PATH with the tokenizer of MODEL.
std::string rows_command(const std::string& path, const std::string& model) {
    return fmt::format("dslaunch data prepare {} --model {} --pack -o {}", shell_word(path),
                       model.empty() ? "FOLDER" : shell_word(model), rows_of(path));
}

std::string two_commands(const std::string& path) {
    return fmt::format("{}, then dslaunch FOLDER --data {} (FOLDER: a Hugging Face model)",
                       rows_command(path, ""), rows_of(path));
}

bool is_table_text(const std::string& path) {
    return path.ends_with(".csv") || path.ends_with(".tsv");
}

bool is_json(std::span<const std::byte> bytes) {
    const std::string_view beginning = trim(text_in(bytes).substr(0, 64));
    return beginning.starts_with("{") || beginning.starts_with("[");
}

std::string about_text(const std::string& path, const std::string& model,
                       std::span<const std::byte> bytes) {
    if (is_table_text(path))
        return fmt::format("is a text table, which is not supported: {}", kAsColumns);
    if (is_json(bytes))
        return fmt::format(
            "contains JSON, not tokens. First convert it to rows of tokens with the tokenizer of "
            "{}: {}{}",
            model.empty() ? "a Hugging Face folder" : "the model", rows_command(path, model),
            model.empty() ? fmt::format("; or, for a model whose tokens are bytes: dslaunch tokens "
                                        "bytes {} -o {}",
                                        shell_word(path), shell_word(path + ".tokens"))
                          : "");
    if (!model.empty())
        return fmt::format(
            "is text, not tokens. First convert it to rows of tokens with the model's tokenizer: "
            "{}",
            rows_command(path, model));
    return fmt::format(
        "is text, not tokens: to make each byte a token, run `dslaunch tokens bytes {} -o "
        "{}`; to save a tokenizer's ids, use numpy.array(ids, "
        "\"uint16\").tofile(\"data.bin\")",
        shell_word(path), shell_word(path + ".tokens"));
}

// Returns why the text at PATH, with these BYTES, is neither a model to train nor a program to
// start.
std::string why_no_target(const std::string& path, std::span<const std::byte> bytes) {
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    if (path.ends_with(".json") && is_there(folder / "config.json"))
        return fmt::format("belongs to a model: give the model's folder, {0}",
                           folder.empty() ? "." : printable(folder.string()));
    if (text_in(bytes).starts_with("#!"))
        return fmt::format("is a script, but not executable: chmod +x {}, then start it as {}",
                           shell_word(path),
                           shell_word(path.find('/') == path.npos ? "./" + path : path));
    std::string why = "is text, neither a model nor an executable program. ";
    if (is_table_text(path)) return why + "Text tables are not supported: " + kAsColumns;
    why += "To train on it: " + two_commands(path);
    if (!is_json(bytes))
        why += fmt::format(
            "; or, for a model whose tokens are bytes: dslaunch tokens bytes {0} -o {1}, "
            "then dslaunch train.pt --data {1}",
            shell_word(path), shell_word(path + ".tokens"));
    return why + ". If it is a script, make it executable with chmod +x";
}

bool has_text_name(std::string_view path) {
    constexpr std::string_view kEndings[] = {".txt", ".text", ".md", ".json", ".jsonl", ".csv"};
    return std::ranges::any_of(kEndings, [&](auto ending) { return path.ends_with(ending); });
}

bool has_token_name(std::string_view path) {
    return path.ends_with(".tokens") || path.ends_with(".u16") || path.ends_with(".u32") ||
           path.ends_with(".bin");
}

// Returns the words for weights that were given as data. MODEL is the model's folder, or empty.
std::string weights_as_data(const std::string& model) {
    return fmt::format(
        "contains the weights of a model, not rows of data: give the model as the first argument, "
        "and with --data the file of rows that `dslaunch data prepare TEXTS --model {} -o "
        "rows.safetensors` writes",
        model.empty() ? "FOLDER" : shell_word(model));
}

// Returns why a file of KIND cannot be data. Returns nothing if the file may be data, or if the
// code that reads it will report the fault.
std::optional<std::string> why_no_data(const std::string& path, FileKind kind,
                                       const std::string& model, std::span<const std::byte> bytes) {
    const bool rows = is_row_file(path);
    switch (kind) {
        case FileKind::kOther:
            // A short text cannot be recognized by its content, so the end of its name decides.
            if (has_text_name(path)) return about_text(path, model, bytes);
            return std::nullopt;
        case FileKind::kOnnx:
            return std::nullopt;
        case FileKind::kText:
            return rows ? std::nullopt : std::optional(about_text(path, model, bytes));
        case FileKind::kSafetensors:
            if (holds_weights(path, bytes)) return weights_as_data(model);
            if (rows) return std::nullopt;
            return "contains tensors (safetensors), not raw tokens: to read its columns, rename it "
                   "to end with .safetensors";
        case FileKind::kNpy:
            if (rows) return std::nullopt;
            return "is a NumPy array with a header, not raw tokens: to write raw tokens, use "
                   "numpy.load(file).astype(\"uint16\").tofile(\"data.bin\"); if it has rows of "
                   "samples, rename it to end with .npy";
        case FileKind::kNpz:
            return "is an .npz archive, which is not supported; convert it in Python: "
                   "safetensors.numpy.save_file(dict(numpy.load(file)), \"data.safetensors\")";
        case FileKind::kPickle:
            return "is a pickle written by torch.save, and pickles are not supported; in Python, "
                   "save tokens with tokens.numpy().astype(\"uint16\").tofile(\"data.bin\"), or "
                   "columns with safetensors.torch.save_file({\"x\": x, \"y\": y}, "
                   "\"data.safetensors\")";
        case FileKind::kGguf:
        case FileKind::kTorchScript:
        case FileKind::kExportedProgram:
            return "is a model, not data: give the model as the first argument, and the data "
                   "with --data";
        case FileKind::kTable:
            return fmt::format(
                "is a table (Parquet, Arrow or HDF5), which is not read directly: {}. For text in "
                "Parquet, `dslaunch data prepare` makes rows of tokens",
                kAsColumns);
        case FileKind::kZip:
        case FileKind::kUnreadZip:
        case FileKind::kCompressed:
            return "is compressed or an archive of files, which is not supported: unpack it";
        case FileKind::kNoDownload:
            return download_fault(text_in(bytes));
    }
    return std::nullopt;
}

// Throws Error{kInput} with the text that OBJECTION returns for the file's kind, if any. Accepts a
// file that cannot be read: the code that reads it later reports the error.
template <typename Objection>
void require_kind(const std::string& path, Objection objection) {
    std::optional<std::string> why;
    try {
        const MappedFile file(path);
        why = objection(file_kind(file.bytes()), file.bytes());
    } catch (const Error&) {
        return;
    }
    if (why) fail(ExitCode::kInput, "{}: {}", printable(path), *why);
}

}  // namespace

bool has_model_name(std::string_view path) {
    constexpr std::array<std::string_view, 8> kEndings = {
        ".pth", ".bin", ".ckpt", ".safetensors", ".onnx", ".torchscript", ".jit", ".ptl"};
    return std::ranges::any_of(kEndings,
                               [&](std::string_view ending) { return path.ends_with(ending); });
}

bool is_row_file(std::string_view path) {
    return path.ends_with(".safetensors") || path.ends_with(".npy");
}

bool is_file_of_rows(const std::string& path) {
    try {
        const MappedFile file(path);
        return file_kind(file.bytes()) == FileKind::kSafetensors && holds_rows(path, file.bytes());
    } catch (const Error&) {
        return false;
    }
}

std::string file_text(const std::string& path) {
    try {
        const MappedFile file(path);
        const FileKind kind = file_kind(file.bytes());
        if (kind == FileKind::kNoDownload) return download_fault(text_in(file.bytes()));
        if (kind == FileKind::kSafetensors)
            return is_file_of_rows(path) ? "contains rows of tokens"
                                         : "contains weights (safetensors)";
        const std::string_view text = text_in(file.bytes());
        const bool is_short_text =
            kind == FileKind::kOther && !text.empty() && printable(trim(text)) == trim(text);
        return fmt::format("is {}", file_kind_name(is_short_text ? FileKind::kText : kind));
    } catch (const Error&) {
        return "is a file that cannot be read";
    }
}

void require_model(const std::string& path) {
    require_kind(path, [&](FileKind kind, std::span<const std::byte> bytes) {
        return why_no_model(path, kind, bytes);
    });
}

void require_data(const std::string& path, const std::string& model) {
    require_kind(path, [&](FileKind kind, std::span<const std::byte> bytes) {
        return why_no_data(path, kind, model, bytes);
    });
}

void require_target(const std::string& path) {
    require_kind(path, [&](FileKind kind, std::span<const std::byte> bytes) {
        // A script of a few words is too short to be recognized as text.
        if (kind == FileKind::kText || text_in(bytes).starts_with("#!"))
            return std::optional(why_no_target(path, bytes));
        if (kind == FileKind::kOther && has_token_name(path))
            return std::optional("is neither a model nor a program; " + as_data(path));
        return why_no_model(path, kind, bytes);
    });
}

void require_rows(const std::string& path, const std::string& model) {
    require_kind(path, [&](FileKind kind, auto bytes) -> std::optional<std::string> {
        if (kind == FileKind::kSafetensors && holds_weights(path, bytes))
            return weights_as_data(model);
        if (kind == FileKind::kSafetensors) return std::nullopt;
        if (kind == FileKind::kNoDownload) return download_fault(text_in(bytes));
        if (kind == FileKind::kText && !is_table_text(path))
            return "is text, not rows of tokens. First convert it: " + rows_command(path, model);
        if (path.ends_with(".safetensors")) return std::nullopt;  // its reader reports the fault
        return "is not a .safetensors file of rows, which `dslaunch data prepare` writes; a file "
               "of raw tokens has no rows to show: `dslaunch data stats` counts its tokens";
    });
}

}  // namespace dslaunch::storage
