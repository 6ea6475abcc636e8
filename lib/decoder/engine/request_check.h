// Decides which requests an engine accepts: their tokens, their length and how they are sampled.
// Pure; no threads.
#pragma once

#include "decoder/decode/batch.h"
#include "decoder/engine/request.h"

namespace dslaunch::decoder {

// Throws Error{kInput} for a prompt that is empty, contains a token outside RUNNER's vocabulary, or
// leaves no room in the context or in the cache; Error{kUsage} if a sampling option is out of
// range. Any thread.
void check_request(const Request& request, const BatchRunner& runner);

}  // namespace dslaunch::decoder
