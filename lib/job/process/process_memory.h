// The allocator's treatment of freed memory: given back while a job is set up, kept while it steps.
// Both calls act on the whole process; call them while there are few threads.
#pragma once

namespace dslaunch::job {

// Memory that loading takes goes back to the system when it is freed: large blocks stay mappings of
// their own.
void return_freed_memory();

// Activations come and go each step: freed memory is kept, so that no page is faulted in twice.
void keep_freed_memory();

}  // namespace dslaunch::job
