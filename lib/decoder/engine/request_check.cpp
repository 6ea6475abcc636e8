#include "decoder/engine/request_check.h"

#include <cstdint>

#include "base/error.h"

namespace dslaunch::decoder {

void check_request(const Request& request, const BatchRunner& runner) {
    static_cast<void>(Sampler(request.sampling));
    if (request.prompt.empty()) fail(ExitCode::kInput, "the prompt has no tokens");
    for (const int32_t token : request.prompt)
        if (token < 0 || token >= runner.vocabulary())
            fail(ExitCode::kInput,
                 "prompt token {} is outside the model's vocabulary of {}; does the model's folder "
                 "have the tokenizer.json of another model?",
                 token, runner.vocabulary());
    if (request.sampling.rules)
        for (const TokenBias& bias : request.sampling.rules->biases)
            for (const int32_t token : bias.tokens)
                if (token < 0 || token >= runner.vocabulary())
                    fail(ExitCode::kInput,
                         "a bias is given for token {}, which is outside the model's vocabulary of "
                         "{}",
                         token, runner.vocabulary());
    const int64_t positions = runner.positions_max();
    const int64_t prompt_numel = std::ssize(request.prompt);
    if (prompt_numel > positions)
        fail(ExitCode::kInput, "the prompt has {} tokens, but {} is {}: shorten the prompt",
             prompt_numel,
             positions == runner.context() ? "the context length (the model's, or --context)"
                                           : "the capacity of the cache",
             positions);
}

}  // namespace dslaunch::decoder
