// Writes a model as a GGUF file, which llama.cpp reads.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/machine/memory_limits.h"
#include "base/terminal/progress.h"
#include "base/text.h"
#include "compress/input_squares.h"
#include "graph/models/transformer.h"
#include "storage/disk/output_place.h"
#include "storage/gguf_model/gguf_model_writer.h"
#include "storage/huggingface/model_folder.h"
#include "worker/compress/compress_parts.h"

namespace dslaunch::worker {

void require_gguf_form(const CompressArguments& arguments) {
    if (arguments.group >= 0 || arguments.has_minimum || arguments.is_symmetric)
        fail(ExitCode::kUsage,
             "--group, --minimum and --symmetric have no meaning for the GGUF form {}, which has "
             "its own groups; leave them out",
             arguments.to);
    if (!arguments.method.empty())
        fail(
            ExitCode::kUsage,
            "--method {}: is for folders (int8, int4, int3, int2); numbers of the GGUF form {} are "
            "rounded to nearest, and with --calibrate their errors are weighed",
            arguments.method, arguments.to);
    storage::require_new_file(arguments.out, arguments.force);
}

CompressedModel compress_to_gguf(const CompressArguments& arguments, kernels::ThreadTeam& team) {
    require_gguf_form(arguments);
    const storage::ModelFolder folder = storage::open_model_folder(arguments.model);
    Progress progress("compress", "rounding the weights");
    storage::GgufWriteOptions options;
    options.type = *storage::gguf_file_type(arguments.to);
    options.threads = static_cast<size_t>(team.threads());
    std::map<std::string, std::vector<float>> squares;
    if (!arguments.calibrate.empty()) {
        const auto texts = calibration_texts(arguments, folder.config);
        progress.begin("reading the calibration rows", std::ssize(folder.config.layers), "layers");
        squares = compress::input_squares(folder, graph::rotary_frequencies(folder.config), texts,
                                          tightest_share(read_memory_state().limits, 1), team,
                                          [&](int64_t layers) { progress.done(layers); });
        options.importance = [&](const std::string& name, int64_t) {
            const auto found = squares.find(name);
            return found == squares.end() ? std::vector<float>() : found->second;
        };
    }
    bool has_begun = false;
    options.progress = [&](int64_t done, int64_t total) {
        constexpr int64_t kMillion = 1'000'000;
        if (!std::exchange(has_begun, true))
            progress.begin("rounding the weights", total / kMillion, "million numbers");
        progress.done(done / kMillion);
    };
    const storage::GgufWritten written = storage::write_gguf(folder, arguments.out, options);
    progress.end();
    CompressedModel model;
    model.weights = written.weights;
    model.weight_bytes_before = written.weight_bytes_before;
    model.weight_bytes_after = written.weight_bytes_after;
    model.bytes_before = written.bytes_before;
    model.bytes_after = written.bytes_after;
    for (const storage::GgufTensorLoss& loss : written.losses)
        model.losses.push_back({loss.name, loss.error});
    return model;
}

}  // namespace dslaunch::worker
