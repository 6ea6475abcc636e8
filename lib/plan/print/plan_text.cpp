#include "plan/print/plan_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "base/text.h"
#include "base/text/text_table.h"

namespace dslaunch::plan {

namespace {

std::string join_numbers(const std::vector<int>& numbers) {
    std::string text;
    for (const int number : numbers) text += fmt::format("{}{}", text.empty() ? "" : " ", number);
    return text;
}

void memory_json(const StepPlan& plan, JsonWriter& json) {
    json.key("memory").begin_object();
    const auto peaks = peak_by_tier(plan);
    for (size_t t = 0; t < peaks.size(); ++t) {
        json.key(tier_name(static_cast<Tier>(t))).begin_object();
        json.field("persistent_bytes", peaks[t].persistent.value)
            .field("peak_bytes", peaks[t].peak.value);
        json.field("peak_instruction", peaks[t].instruction).end_object();
    }
    json.key("by_kind").begin_object();
    const auto kinds = peak_by_kind(plan);
    for (size_t kind = 0; kind < kinds.size(); ++kind)
        json.field(buffer_kind_name(static_cast<BufferKind>(kind)), kinds[kind].value);
    json.end_object().end_object();
}

// Descriptions of the buffers of each kind. A description is empty if the kind's name is enough.
constexpr std::array<std::string_view, kBufferKinds> kContents = {
    "",
    "",
    "fp32 copies of 16-bit parameters",
    "the optimizer's states",
    "values that backward needs, temporary values",
    "values between segments, and their gradients",
    "the model's own buffers, such as running averages",
    "parameters gathered from other ranks",
    "samples",
    "norm and flags",
    "chunks that are moved between memory and disk"};

// Returns the name of KIND with blanks: "live values". In JSON, the same name is "live_values".
std::string title_of(BufferKind kind) {
    std::string name(buffer_kind_name(kind));
    std::ranges::replace(name, '_', ' ');
    return name;
}

std::string memory_table(const StepPlan& plan) {
    std::string text = fmt::format("{:<14} {:>12}\n", "memory of", "at most");
    const auto kinds = peak_by_kind(plan);
    for (size_t k = 0; k < kinds.size(); ++k) {
        const auto kind = static_cast<BufferKind>(k);
        const std::string_view words = kContents[k];
        if (kinds[k].value > 0)
            text += fmt::format("{:<14} {:>12}{}{}\n", title_of(kind), to_text(kinds[k]),
                                words.empty() ? "" : "  ", words);
    }
    text += fmt::format("\n{:<14} {:>12} {:>12}\n", "tier", "all the time", "at most");
    const auto peaks = peak_by_tier(plan);
    for (size_t t = 0; t < peaks.size(); ++t)
        if (peaks[t].peak.value > 0)
            text += fmt::format("{:<14} {:>12} {:>12}{}\n", tier_name(static_cast<Tier>(t)),
                                to_text(peaks[t].persistent), to_text(peaks[t].peak),
                                peaks[t].instruction < 0
                                    ? ""
                                    : fmt::format(" at instruction {}", peaks[t].instruction));
    return text;
}

// Equal layers are recognized if a layer has at most this many segments.
constexpr size_t kPiecesMax = 8;

// Compares NAME and NEXT part by part (the parts are separated by dots). Returns the index of the
// only part that differs, if this part is a number that is one higher in NEXT; otherwise returns
// nullopt.
std::optional<size_t> counted_part(const std::string& name, const std::string& next) {
    const std::vector<std::string> parts = split(name, '.'), others = split(next, '.');
    if (parts.size() != others.size()) return std::nullopt;
    std::optional<size_t> found;
    for (size_t i = 0; i < parts.size(); ++i) {
        if (parts[i] == others[i]) continue;
        const auto number = parse_int(parts[i]), other = parse_int(others[i]);
        if (found || !number || !other || *other != *number + 1) return std::nullopt;
        found = i;
    }
    return found;
}

// Returns the number of equal consecutive layers from row BEGIN on. A layer has PIECES segments.
size_t like_layers(const std::vector<SegmentRow>& rows, size_t begin, size_t pieces) {
    const auto part = begin + pieces < rows.size()
                          ? counted_part(rows[begin].name, rows[begin + pieces].name)
                          : std::nullopt;
    size_t end = begin;
    while (part && end + pieces < rows.size() && rows[end].cells == rows[end + pieces].cells &&
           counted_part(rows[end].name, rows[end + pieces].name) == part)
        ++end;
    return (end - begin) / pieces + 1;
}

// Returns "blocks.0 to 3, each".
std::string name_of_layers(const std::string& first, const std::string& last) {
    std::vector<std::string> parts = split(first, '.'), others = split(last, '.');
    for (size_t i = 0; i < parts.size(); ++i)
        if (parts[i] != others[i]) parts[i] += " to " + others[i];
    return join(parts, ".") + ", each";
}

// Returns the numbers of equal segments: "1..28", or "1, 3..7" if each layer has several segments.
std::string numbers_of_layers(size_t first, size_t pieces, size_t layers) {
    const size_t last = first + (layers - 1) * pieces;
    if (pieces == 1) return fmt::format("{}..{}", first, last);
    return layers == 2 ? fmt::format("{}, {}", first, last)
                       : fmt::format("{}, {}..{}", first, first + pieces, last);
}

std::string bytes_or_blank(Bytes bytes) {
    return bytes.value > 0 ? to_text(bytes) : "";
}

// The bytes that a step moves, by destination.
struct Moved {
    Bytes between_ranks;
    Bytes from_disk;
    Bytes to_disk;
};

Moved moved(const StepPlan& plan) {
    Moved moved;
    for (const Instruction& instruction : plan.instructions) {
        const Lane lane = instruction.lane;
        (lane == Lane::kRead    ? moved.from_disk
         : lane == Lane::kWrite ? moved.to_disk
                                : moved.between_ranks) += instruction.bytes;
    }
    return moved;
}

// Returns the sent bytes for each kind of instruction that sends, if there are several kinds.
std::string kinds_text(const StepPlan& plan) {
    const auto sent = plan.sent_by_kind();
    std::string text;
    for (size_t kind = 0; kind < sent.size(); ++kind)
        if (sent[kind].value > 0)
            text += fmt::format("{}{} {}", text.empty() ? "" : ", ", kTrafficKindNames[kind],
                                to_text(sent[kind]));
    return text.empty() ? text : fmt::format(" ({})", text);
}

}  // namespace

std::string describe(const Instruction& instruction, const ModelInfo& model) {
    std::string text(op_name(instruction.op));
    if (instruction.segment >= 0)
        text += fmt::format(" segment {} ({})", instruction.segment,
                            model.segments[instruction.segment].name);
    if (instruction.peer >= 0)
        text += fmt::format(", {} after part {}, stage {}",
                            instruction.gradients ? "gradients" : "values", instruction.part,
                            instruction.peer);
    if (instruction.bucket >= 0) text += fmt::format(" bucket {}", instruction.bucket);
    // A bucket in memory has only one chunk. Therefore a chunk is named only if it passes through a
    // buffer.
    const bool passes =
        instruction.chunk >= 0 && (instruction.buffer >= 0 || instruction.sum_buffer >= 0);
    if (passes) text += fmt::format(" chunk {}", instruction.chunk);
    if (instruction.buffer >= 0) text += fmt::format(" buffer {}", instruction.buffer);
    if (instruction.sum_buffer >= 0) text += fmt::format(" sum buffer {}", instruction.sum_buffer);
    if (instruction.micro_step >= 0) text += fmt::format(", micro step {}", instruction.micro_step);
    return text;
}

std::vector<std::vector<std::string>> numbered_rows(const std::vector<SegmentRow>& rows,
                                                    bool is_folded) {
    std::vector<std::vector<std::string>> numbered;
    const auto add = [&](std::string number, std::string name, const SegmentRow& row) {
        numbered.push_back({std::move(number), std::move(name)});
        numbered.back().insert(numbered.back().end(), row.cells.begin(), row.cells.end());
    };
    for (size_t begin = 0; begin < rows.size();) {
        size_t pieces = 1, layers = 1;
        for (size_t tried = 1; is_folded && tried <= kPiecesMax; ++tried) {
            const size_t found = like_layers(rows, begin, tried);
            if (found > 1 && found * tried > layers * pieces) {
                pieces = tried;
                layers = found;
            }
        }
        for (size_t i = begin; i < begin + pieces; ++i) {
            const SegmentRow& row = rows[i];
            if (layers == 1) {
                add(std::to_string(i), row.name, row);
            } else {
                add(numbers_of_layers(i, pieces, layers),
                    name_of_layers(row.name, rows[i + (layers - 1) * pieces].name), row);
            }
        }
        begin += layers * pieces;
    }
    return numbered;
}

std::string segments_table(const ModelInfo& model, bool is_folded) {
    std::vector<SegmentRow> segments;
    for (const SegmentInfo& segment : model.segments) {
        int64_t numel = 0;
        for (const int parameter : segment.parameters) numel += model.parameters[parameter].numel;
        segments.push_back(
            {segment.name,
             {std::to_string(segment.nodes), std::to_string(numel),
              to_text(segment.activation_bytes), to_text(segment.output_bytes),
              fmt::format("{:.3f}", static_cast<double>(segment.forward_flops) / 1e9)}});
    }
    std::vector<std::vector<std::string>> rows = numbered_rows(segments, is_folded);
    rows.insert(rows.begin(),
                {"#", "segment", "nodes", "parameters", "activations", "live after", "GFLOP"});
    return text_table(rows, {.align = "><>>>>>"});
}

std::string instructions_table(const StepPlan& plan, const ModelInfo& model,
                               const FlatLayout& layout) {
    std::string text = fmt::format(
        "rank {}: {} instructions, {} buckets, {} trainable elements in the flat buffers\n",
        plan.rank, plan.instructions.size(), layout.buckets.size(), layout.trained_numel);
    text += fmt::format("{:>5} {:<13} {:<60} {:>10} {:>10} {}\n", "#", "lane", "instruction",
                        "moves", "sends", "waits for");
    for (size_t i = 0; i < plan.instructions.size(); ++i) {
        const Instruction& instruction = plan.instructions[i];
        text +=
            fmt::format("{:>5} {:<13} {:<60} {:>10} {:>10} {}\n", i, lane_name(instruction.lane),
                        describe(instruction, model), bytes_or_blank(instruction.bytes),
                        bytes_or_blank(instruction.sent), join_numbers(instruction.waits));
    }
    return text;
}

std::string plan_summary(const StepPlan& plan) {
    const Moved bytes = moved(plan);
    std::string text =
        fmt::format("bytes moved between ranks per step: {}\n", to_text(bytes.between_ranks));
    if (bytes.from_disk.value + bytes.to_disk.value > 0)
        text += fmt::format("per step, read from this rank's disk: {}, written to it: {}\n",
                            to_text(bytes.from_disk), to_text(bytes.to_disk));
    const bool on_device = peak_by_tier(plan)[static_cast<size_t>(Tier::kDevice)].peak.value > 0;
    text += fmt::format("sent to other {}, per step: {}\n\n",
                        on_device ? "GPUs by this rank" : "hosts by this rank's host",
                        to_text(plan.sent()) + kinds_text(plan));
    return text + memory_table(plan);
}

void plan_json(const StepPlan& plan, const ModelInfo& model, const FlatLayout& layout,
               JsonWriter& json) {
    json.begin_object().field("rank", plan.rank).field("flat_numel", layout.numel);
    json.field("hash", fmt::format("{:016x}", plan.hash()));
    json.key("instructions").begin_array();
    for (size_t i = 0; i < plan.instructions.size(); ++i) {
        const Instruction& instruction = plan.instructions[i];
        json.begin_object().field("index", i).field("op", op_name(instruction.op));
        json.field("lane", lane_name(instruction.lane)).field("text", describe(instruction, model));
        if (instruction.segment >= 0) json.field("segment", instruction.segment);
        if (instruction.bucket >= 0) json.field("bucket", instruction.bucket);
        if (instruction.micro_step >= 0) json.field("micro_step", instruction.micro_step);
        if (instruction.buffer >= 0) json.field("buffer", instruction.buffer);
        if (instruction.chunk >= 0) json.field("chunk", instruction.chunk);
        if (instruction.sum_buffer >= 0) json.field("sum_buffer", instruction.sum_buffer);
        json.field("bytes", instruction.bytes.value).field("sent_bytes", instruction.sent.value);
        json.field("flops", instruction.flops).key("waits").begin_array();
        for (const int wait : instruction.waits) json.value(wait);
        json.end_array().end_object();
    }
    const Moved bytes = moved(plan);
    json.end_array().field("bytes_moved", bytes.between_ranks.value);
    json.field("disk_read_bytes", bytes.from_disk.value);
    json.field("disk_written_bytes", bytes.to_disk.value);
    json.field("sent_bytes", plan.sent().value).key("sent_bytes_by_kind").begin_object();
    const auto sent = plan.sent_by_kind();
    for (size_t kind = 0; kind < sent.size(); ++kind)
        json.field(kTrafficKindNames[kind], sent[kind].value);
    json.end_object();
    memory_json(plan, json);
    json.end_object();
}

}  // namespace dslaunch::plan
