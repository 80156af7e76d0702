//! Recording a program: what runs in hksim record
