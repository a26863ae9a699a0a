"""Filters blocks of consume queue entries: filter bit maps at dispatch, then the filters of all groups at delivery."""
