// The texts that a language model writes at each evaluation of a run. The prompts come from the
// config. The model's continuations go to the terminal, one line each, and into samples.jsonl. Data
// path: config, token writer -> [here] -> reporter, file. Thread: the compute lane.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/run/run_config.h"
#include "runtime/comm/collectives.h"
#include "runtime/eval/token_writer.h"
#include "runtime/train/reporter.h"
#include "worker/text/text_files.h"

namespace dslaunch::worker {

// The objects and settings for the samples of a run. All objects that the pointers refer to must
// outlive the TextSamples.
struct TextSampleParts {
    const config::RunConfig* config = nullptr;
    std::string model;         // path of the model
    std::string output;        // the run's folder; empty: no file is written
    int64_t steps_before = 0;  // steps of earlier runs in that folder; 0: the file starts empty
    runtime::Collectives* collectives = nullptr;
    runtime::Reporter* reporter = nullptr;
};

// Writes samples; see the top of this file.
class TextSamples {
  public:
    // Reads the prompts on the first rank; all ranks call it, before the first step. Throws
    // Error{kInput} if the prompts cannot be read or have unknown tokens, or if they are text but
    // the model has no tokenizer.
    TextSamples(TextSampleParts parts, runtime::TokenWriterParts writer);

    // Continues the prompts with the model after STEP. All ranks call it. If the file cannot be
    // written, warns and removes incomplete lines. Throws the errors of TokenWriter::write.
    void write(int64_t step);

  private:
    void report(int64_t step, const std::vector<std::vector<int32_t>>& texts) const;
    void read_prompts();

    TextSampleParts parts_;
    runtime::TokenWriter writer_;
    std::unique_ptr<const TextFiles> files_;     // on the first rank
    std::vector<std::string> shown_;             // on the first rank: the prompts as text
    std::vector<std::vector<int32_t>> prompts_;  // on all ranks
    runtime::Continuation how_;
};

}  // namespace dslaunch::worker
