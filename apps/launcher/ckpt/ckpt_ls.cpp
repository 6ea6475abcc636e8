// dslaunch ckpt ls: the checkpoints below a folder, and saves that were not finished.
#include <fmt/core.h>

#include <cstdio>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/screen.h"
#include "base/text.h"
#include "base/text/text_table.h"
#include "launcher/ckpt/ckpt_parts.h"
#include "storage/checkpoint/checkpoint_reader.h"

namespace dslaunch::launcher {
namespace {

struct LsArguments {
    std::string path = ".";
    bool json = false;
};

struct LsRow {
    storage::StoredCheckpoint stored;
    std::optional<storage::Checkpoint> checkpoint;  // the manifest, if it can be read
    bool under_way = false;                         // step-N.tmp-…
    [[nodiscard]] const char* state() const {
        if (under_way) return "incomplete";
        if (!stored.is_complete) return "damaged";
        return stored.is_finite ? "complete" : "not finite";
    }
};

LsRow row_of(const storage::FileTree& tree, const storage::StoredCheckpoint& stored) {
    LsRow row{stored, {}, false};
    if (!stored.is_complete) return row;
    try {
        row.checkpoint = storage::CheckpointReader(tree, stored.folder).checkpoint();
    } catch (const Error& error) {  // removed or damaged since it was listed
        row.stored.is_complete = false;
        row.stored.fault = error.what();
    }
    return row;
}

// Returns the folders of saves that are still running or were never finished.
std::vector<LsRow> saves_under_way(const storage::FileTree& tree, const std::string& root) {
    std::vector<LsRow> rows;
    const auto entries = tree.list(root);
    if (!entries) return rows;
    for (const storage::FolderEntry& entry : *entries) {
        const size_t tmp = entry.name.find(".tmp-");
        if (!entry.is_folder || !entry.name.starts_with("step-") || tmp == std::string::npos)
            continue;
        LsRow row;
        row.under_way = true;
        row.stored.folder = fmt::format("{}/{}", root, entry.name);
        row.stored.step = parse_int(entry.name.substr(5, tmp - 5)).value_or(-1);
        row.stored.fault =
            "this save is still in progress or was interrupted; the next save removes it";
        for (const storage::FolderEntry& file :
             tree.list(row.stored.folder).value_or(std::vector<storage::FolderEntry>{}))
            row.stored.bytes += file.bytes;
        rows.push_back(std::move(row));
    }
    return rows;
}

void print_json(const std::vector<LsRow>& rows) {
    JsonWriter json;
    json.begin_array();
    for (const LsRow& row : rows) {
        json.begin_object().field("folder", row.stored.folder).field("step", row.stored.step);
        json.field("state", row.state()).field("verified", row.stored.is_verified);
        json.field("bytes", row.stored.bytes.value);
        json.key("fault");
        row.stored.fault.empty() ? json.null() : json.value(row.stored.fault);
        const storage::Checkpoint* checkpoint = row.checkpoint ? &*row.checkpoint : nullptr;
        const auto field = [&](const char* name, auto value) {
            json.key(name);
            checkpoint == nullptr ? json.null() : json.value(value(*checkpoint));
        };
        field("created", [](const storage::Checkpoint& c) { return c.created; });
        field("world_size", [](const storage::Checkpoint& c) { return c.world_size; });
        field("zero_stage", [](const storage::Checkpoint& c) { return c.zero_stage; });
        field("loss", [](const storage::Checkpoint& c) { return c.training.loss; });
        const std::optional<storage::EvalRecord>& evaluated = row.stored.evaluated;
        json.key("eval_metric");
        evaluated ? json.value(eval_metric_name(*evaluated->metric)) : json.null();
        json.key("eval_value");
        evaluated ? json.value(evaluated->value) : json.null();
        json.field("best", row.stored.is_best);
        json.end_object();
    }
    json.end_array();
    fmt::print("{}\n", json.text());
}

// Returns the result of the evaluation directly after the checkpoint's step. Adds "best" if the
// result is the best of its run.
std::string held_out_text(const storage::StoredCheckpoint& stored) {
    if (!stored.evaluated) return "-";
    return fmt::format("{:.4f}{}", stored.evaluated->value, stored.is_best ? " best" : "");
}

void print_table(const std::vector<LsRow>& rows) {
    std::vector<std::vector<std::string>> table = {
        {"step", "when (UTC)", "size", "state", "verified", "world", "stage", "loss", "held out"}};
    for (const LsRow& row : rows) {
        const storage::Checkpoint* c = row.checkpoint ? &*row.checkpoint : nullptr;
        table.push_back({std::to_string(row.stored.step),
                         c == nullptr ? "-" : printable(c->created), to_text(row.stored.bytes),
                         row.state(), row.stored.is_verified ? "yes" : "no",
                         c == nullptr ? "-" : std::to_string(c->world_size),
                         c == nullptr ? "-" : std::to_string(c->zero_stage),
                         c == nullptr ? "-" : fmt::format("{:.4f}", c->training.loss),
                         held_out_text(row.stored)});
    }
    fmt::print("{}", text_table(table, {.align = "><><<>>><"}));
    for (const LsRow& row : rows) {
        if (!row.stored.fault.empty())
            fmt::print("{}: {}\n", printable(row.stored.folder), printable(row.stored.fault));
    }
}

int list_checkpoints(const LsArguments& arguments) {
    const std::unique_ptr<storage::FileTree> tree = storage::make_disk_tree();
    std::vector<LsRow> rows;
    for (const storage::StoredCheckpoint& stored : checkpoints_at(*tree, arguments.path))
        rows.push_back(row_of(*tree, stored));
    const std::string root = storage::find_checkpoints(*tree, arguments.path).root;
    if (!root.empty()) {
        for (LsRow& row : saves_under_way(*tree, root)) rows.push_back(std::move(row));
    }
    if (arguments.json) {
        print_json(rows);
    } else if (rows.empty()) {
        print_message(
            fmt::format("dslaunch: {}: contains no checkpoint; give the --output folder of a run "
                        "that saved one (dslaunch.save.interval), or its checkpoints folder",
                        printable(arguments.path)));
    } else {
        print_table(rows);
    }
    return 0;
}

}  // namespace

int ckpt_ls(CommandLine& command, const Parse& parse) {
    LsArguments arguments;
    command.add(
        "PATH", arguments.path,
        "an --output folder, its checkpoints folder, or one step folder; default: this folder");
    command.add("--json", arguments.json, "one JSON array");
    return parse() ? list_checkpoints(arguments) : 0;
}

}  // namespace dslaunch::launcher
