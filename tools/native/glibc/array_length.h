#pragma once
#define array_length(array) (sizeof(array) / sizeof *(array))
#define array_end(array) ((array) + array_length(array))
